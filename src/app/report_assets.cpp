// Style and script of the report. Colours of the runs are told apart on light and on dark ground.
#include "app/report_page.hpp"

namespace trireme::app {

const char* const report_style = R"css(
:root { color-scheme: light dark;
  --ground: #f6f7f8; --card: #ffffff; --edge: #dde1e5; --text: #1d2329; --soft: #5d6873; --grid: #e8ebee;
  --c0: #2468c4; --c1: #d4600a; --c2: #23835a; --c3: #b83280; --c4: #7650c0; --c5: #0e8a98; --c6: #a87900; --c7: #c23b3b; }
@media (prefers-color-scheme: dark) { :root {
  --ground: #14171a; --card: #1c2024; --edge: #32383e; --text: #e6e9ec; --soft: #9aa5b0; --grid: #2a3036;
  --c0: #6ea8f5; --c1: #f2954a; --c2: #57c193; --c3: #ec7fbb; --c4: #b096f0; --c5: #4cc3d1; --c6: #dcb54a; --c7: #f08080; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.2rem clamp(.7rem, 2.5vw, 2rem) 3rem; max-width: 92rem; background: var(--ground);
  color: var(--text); font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
h1 { font-size: 1.45rem; margin: 0; } h2 { font-size: 1.02rem; margin: 0; }
.hint, .notes { color: var(--soft); font-size: .84rem; margin: 0 0 .6rem; min-height: 1.25em; }
.notes { margin: .8rem 0 0; padding-left: 1.1rem; }
.legend { display: flex; flex-wrap: wrap; gap: .3rem 1.1rem; margin: .7rem 0 1rem; padding: 0; list-style: none; }
.legend li { display: flex; align-items: center; gap: .45rem; overflow-wrap: anywhere; }
.key { flex: none; display: inline-block; width: 1.5rem; height: 0; border-top: 3px solid var(--c); border-radius: 2px; }
.key.dashed { border-top-style: dashed; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 27rem), 1fr)); gap: 1rem; }
.card { background: var(--card); border: 1px solid var(--edge); border-radius: 10px; padding: .9rem 1rem; min-width: 0; }
.wide { margin-top: 1rem; }
.plot { display: grid; grid-template-columns: 3.3rem minmax(0, 1fr); font-size: .75rem; color: var(--soft); padding-right: .6rem;
  font-variant-numeric: tabular-nums; }
.area { position: relative; height: clamp(11rem, 30vw, 15rem); }
.area svg { position: absolute; inset: 0; width: 100%; height: 100%; overflow: visible; }
.area path { fill: none; vector-effect: non-scaling-stroke; stroke-linejoin: round; stroke-linecap: round; }
.area .grid { stroke: var(--grid); stroke-width: 1; }
.line { stroke: var(--c); stroke-width: 2; } .thin { stroke-width: 1.3; } .dots { stroke: var(--c); stroke-width: 6; }
.area .band { fill: var(--c); stroke: none; opacity: .16; } .dashed { stroke-dasharray: 6 4; } .dots.dashed { stroke-dasharray: none; }
.y, .x { position: relative; } .x { grid-column: 2; height: 1.5rem; }
.y span { position: absolute; right: .55rem; transform: translateY(50%); white-space: nowrap; line-height: 1; }
.x span { position: absolute; top: .35rem; transform: translateX(-50%); white-space: nowrap; line-height: 1; }
.cross { position: absolute; top: 0; bottom: 0; width: 0; border-left: 1px dashed var(--soft); display: none; pointer-events: none; }
.c0 { --c: var(--c0); } .c1 { --c: var(--c1); } .c2 { --c: var(--c2); } .c3 { --c: var(--c3); }
.c4 { --c: var(--c4); } .c5 { --c: var(--c5); } .c6 { --c: var(--c6); } .c7 { --c: var(--c7); }
#tip { position: fixed; z-index: 9; display: none; max-width: min(22rem, 92vw); padding: .45rem .65rem; pointer-events: none;
  background: var(--card); border: 1px solid var(--edge); border-radius: 8px; box-shadow: 0 4px 16px rgb(0 0 0 / .22);
  font-size: .8rem; font-variant-numeric: tabular-nums; }
#tip div { display: flex; gap: .5rem; align-items: center; } #tip b { margin-left: auto; padding-left: 1rem; }
#tip span { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; } #tip .key { width: .9rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .86rem; font-variant-numeric: tabular-nums; min-width: 100%; }
th, td { padding: .36rem .7rem; text-align: right; border-bottom: 1px solid var(--grid); vertical-align: top; white-space: nowrap; }
th { color: var(--soft); font-weight: 600; white-space: normal; vertical-align: bottom; } tr:last-child > * { border-bottom: 0; }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0; background: var(--card); padding-left: 0; }
td.name { max-width: 16rem; white-space: normal; overflow-wrap: anywhere; min-width: clamp(6.5rem, 12vw, 9.5rem); } td.best { font-weight: 700; }
small { color: var(--soft); font-weight: 400; display: block; } td .key { width: 1rem; margin-right: .2rem; vertical-align: .28em; }
[hidden] { display: none !important; } .text td, .text th { text-align: left; }
.text td { white-space: pre-wrap; overflow-wrap: anywhere; min-width: 5rem; max-width: 26rem; }
.text td:first-child { white-space: normal; overflow-wrap: normal; padding-right: .3rem; } .absent { color: var(--soft); }
.shares { display: grid; grid-template-columns: minmax(4rem, auto) minmax(0, 1fr); gap: .5rem .9rem; align-items: center; }
.shares > div { overflow-wrap: anywhere; } .shares svg { width: 100%; height: 1.5rem; border-radius: 4px; display: block; }
.shares p { grid-column: 2; margin: -.35rem 0 .3rem; color: var(--soft); font-size: .8rem; }
.communication { fill: var(--c1); } .input { fill: var(--c6); } .rest { fill: var(--c0); opacity: .55; }
.swatch { display: inline-block; width: .75rem; height: .75rem; border-radius: 3px; margin: 0 .35rem 0 .9rem; vertical-align: -1px; }
.swatch:first-child { margin-left: 0; } i.communication { background: var(--c1); } i.input { background: var(--c6); }
i.rest { background: var(--c0); opacity: .55; }
@media (max-width: 34rem) { .shares { grid-template-columns: 1fr; gap: .2rem; } .shares p { grid-column: 1; margin: 0 0 .6rem; }
  .plot { grid-template-columns: 2.9rem minmax(0, 1fr); } .card { padding: .8rem .75rem; } }
)css";

// Shows the nearest point of each curve beside the pointer.
const char* const report_script = R"js(
const tip = document.getElementById('tip'), keys = document.querySelectorAll('.legend li');
const show = (value, percent) => percent ? (100 * value).toFixed(2) + ' %' :
  Math.abs(value) >= 1e4 && Math.abs(value) < 1e15 ? Math.round(value).toLocaleString('en') : +value.toPrecision(4);
for (const plot of document.querySelectorAll('.plot')) {
  const curves = JSON.parse(plot.querySelector('script').textContent), area = plot.querySelector('.area');
  const cross = plot.querySelector('.cross'), first = +plot.dataset.first, last = +plot.dataset.last;
  const hide = () => { tip.style.display = cross.style.display = 'none'; };
  area.addEventListener('pointerleave', hide);
  area.addEventListener('pointermove', event => {
    const box = area.getBoundingClientRect();
    const x = first + (last - first) * (event.clientX - box.left) / box.width;
    const nearest = curves.map(c => {
      let i = 0;
      for (let k = 1; k < c.x.length; ++k) if (Math.abs(c.x[k] - x) < Math.abs(c.x[i] - x)) i = k;
      return i;
    });
    const steps = curves.map((c, n) => c.x[nearest[n]]);
    const at = steps.reduce((a, b) => Math.abs(b - x) < Math.abs(a - x) ? b : a);
    tip.replaceChildren(document.createTextNode('step ' + Math.round(at).toLocaleString('en')));
    const room = (last - first) / 50;
    curves.forEach((c, n) => {
      if (at < c.x[0] - room || at > c.x[c.x.length - 1] + room) return;
      const row = document.createElement('div'), key = document.createElement('i');
      const name = document.createElement('span'), value = document.createElement('b');
      key.className = keys[c.run].querySelector('.key').className;
      name.textContent = [keys.length > 1 ? keys[c.run].textContent : '', c.label].filter(Boolean).join(', ') || 'value';
      value.textContent = show(c.y[nearest[n]], plot.dataset.percent);
      row.append(key, name, value);
      tip.append(row);
    });
    cross.style.left = 100 * (at - first) / (last - first) + '%';
    tip.style.display = cross.style.display = 'block';
    const size = tip.getBoundingClientRect(), page = document.documentElement.clientWidth;
    tip.style.left = Math.max(4, Math.min(page - size.width - 4,
      event.clientX + 14 + size.width > page ? event.clientX - size.width - 14 : event.clientX + 14)) + 'px';
    tip.style.top = Math.max(4, Math.min(innerHeight - size.height - 4, event.clientY + 14)) + 'px';
  });
}
)js";

}  // namespace trireme::app
