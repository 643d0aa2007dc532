// The report's charts and texts with every kind of numbers, and run directories in every state.
#include <cctype>
#include <cmath>
#include <limits>

#include "app/chart.hpp"
#include "app/report_page.hpp"
#include "app/run_record.hpp"
#include "support/catch.hpp"
#include "support/markup.hpp"
#include "support/process.hpp"
#include "trireme/base/error.hpp"

using namespace trireme;
using namespace trireme::app;
using namespace trireme::testing;

namespace {

Series line(std::int64_t count, double (*y)(double)) {
    Series points;
    for (std::int64_t i = 0; i < count; ++i)
        points.push_back({static_cast<double>(i + 1), y(static_cast<double>(i))});
    return points;
}

/// The coordinates of all drawn paths; fails on anything that is no number within the drawing.
std::size_t coordinates(const std::string& html) {
    std::size_t count = 0;
    for (std::size_t at = html.find(" d=\""); at != std::string::npos; at = html.find(" d=\"", at + 1)) {
        std::string path = html.substr(at + 4, html.find('"', at + 4) - at - 4);
        for (char& c : path)
            if (std::string("MLHhZ").find(c) != std::string::npos) c = ' ';
        std::istringstream numbers(path);
        for (double number = 0; numbers >> number; ++count) REQUIRE((number >= 0 && number <= 1000));
        REQUIRE(numbers.eof());
    }
    return count;
}

RunRecord run_with(const TempDir& folder, const std::string& metrics, const std::string& config = "") {
    write_file(folder / "run/metrics.jsonl", metrics);
    if (!config.empty()) write_file(folder / "run/config.ini", config);
    RunRecord run = read_run((folder / "run").string());
    run.name = "run";
    const std::string page = report_html({run});
    CHECK(markup_fault(page) == "");
    coordinates(page);
    return run;
}

std::string step(int at, const std::string& more) {
    return R"({"event":"step","step":)" + std::to_string(at) + more + "}\n";
}

}  // namespace

TEST_CASE("charts of any numbers stay within their drawing", "[unit][app]") {
    constexpr double inf = std::numeric_limits<double>::infinity();
    const std::vector<Series> all = {
        line(1, [](double) { return 3.0; }),
        line(1, [](double) { return 0.0; }),
        line(50, [](double) { return -7.0; }),
        line(50, [](double i) { return i - 20; }),
        line(50, [](double i) { return std::exp(-i / 3); }),
        line(5000, [](double i) { return 1 + std::sin(i); }),
        line(399, [](double i) { return 1e299 * (1 + i); }),
        line(300, [](double i) { return std::pow(10, i - 299); }),
        line(90, [](double i) { return i < 3 ? 1e-290 : 1e290; }),
        {{1, 1}, {2, unknown}, {3, 2}, {4, inf}, {5, 3}, {6, 4}},
        {{1e15, 1}, {1e15 + 1, 2}},
        {{0, 5e-324}, {1, 1}},
    };
    for (std::size_t i = 0; i < all.size(); ++i)
        for (const bool from_zero : {false, true})
            for (const bool dots : {false, true}) {
                INFO(i);
                const std::string html = chart_html({.title = "T",
                                                     .hint = "",
                                                     .curves = {{i, "training", dots, all[i]}},
                                                     .from_zero = from_zero});
                CHECK(coordinates(html) > 1);
                CHECK(markup_fault(html) == "");
                for (const char* wrong : {"nan", "inf", "?", "-0<"})
                    CHECK(html.find(wrong) == std::string::npos);
            }
    CHECK(chart_html({.title = "T", .hint = ""}).empty());
    CHECK(
        chart_html({.title = "T", .hint = "", .curves = {{0, "", false, {{1, unknown}, {2, inf}}}}}).empty());
}

TEST_CASE("long curves are thinned to their mean and range, gaps stay gaps", "[unit][app]") {
    const auto html_of = [](const Series& points, bool rates = false) {
        return chart_html({.title = "T", .hint = "", .curves = {{0, "", false, points}}, .rates = rates});
    };
    const std::string longest = html_of(line(1000000, [](double i) { return std::fmod(i, 10); }));
    CHECK(longest.size() < 30000);
    CHECK_THAT(longest, contains("class=\"band c0\""));
    CHECK_THAT(longest, contains("4.5,4.5,4.5"));
    const std::string all = html_of(line(400, [](double i) { return i; }));
    CHECK(all.find("band") == std::string::npos);  // every point is drawn
    CHECK_THAT(all, contains("\"y\":[0,1,2,3,"));

    // Half of the time at 1 a second, half of the steps at 3: 1.5 a second in all.
    CHECK_THAT(html_of(line(800, [](double i) { return std::fmod(i, 2) == 0 ? 1.0 : 3.0; }), true),
               contains("\"y\":[1.5,1.5,"));

    const std::string gap = html_of({{1, 1}, {2, unknown}, {3, 2}, {4, 3}});
    std::size_t starts = 0;
    const std::size_t at = gap.find("class=\"line");
    for (const char c : gap.substr(at, gap.find("/>", at) - at)) starts += c == 'M' ? 1 : 0;
    CHECK(starts == 2);
    CHECK_THAT(gap, contains("class=\"dots"));  // the point that stands alone
}

TEST_CASE("texts of files do not become markup", "[unit][app]") {
    CHECK(escaped("a<b>&\"'\x01\x7F c") == "a&lt;b&gt;&amp;&quot;&#39;\x7F c");
    const TempDir folder;
    RunRecord run = run_with(folder,
                             R"({"event":"end","reason":"<i>x</i>","seconds":1})"
                             "\n",
                             "[model]\nlayer = <b>bold</b>\n[x]\n<img src=x onerror=alert(1)> = \"</td>\"\n");
    run.name = "</title><script>alert(1)</script>";
    run.path = "\" onclick=\"alert(1)";
    const std::string page = report_html({run, run});
    CHECK(markup_fault(page) == "");
    for (const char* wrong : {"<i>x", "<b>bold", "<img", "alert(1)<", "\" onclick"})
        CHECK(page.find(wrong) == std::string::npos);
    CHECK_THAT(report_html({run}), contains("&lt;b&gt;bold&lt;/b&gt;"));
}

TEST_CASE("metrics in every state are read as far as they go", "[unit][app]") {
    const TempDir folder;
    SECTION("empty") {
        const RunRecord run = run_with(folder, "");
        CHECK(run.loss.empty());
        CHECK(run.config_fault == "no config.ini");
        CHECK_THAT(report_html({run}), contains("run: no step is in metrics.jsonl"));
    }
    SECTION("cut off, null, missing, of other types") {
        const RunRecord run = run_with(folder, "{\"event\":\"start\",\"ranks\":2,\"threads\":\"many\"}\n" +
                                                   step(1, R"(,"loss":1.5,"lr":null)") +
                                                   step(2, R"(,"loss":null,"grad_norm":"x")") +
                                                   step(3, R"(,"loss":NaN)") + step(4, R"(,"loss":1e999)") +
                                                   R"({"event":"step","loss":3})"
                                                   "\n"
                                                   R"({"event":"step","step":"5"})"
                                                   "\n[1]\n\n7\n\x80\xFF\n" +
                                                   R"({"event":"unheard of"})"
                                                   "\n{}\n" +
                                                   step(6, R"(,"loss":-1e308)") +
                                                   R"({"event":"valid","step":6,"loss":0.5})"
                                                   "\n" +
                                                   R"({"event":"step","step":7,"lo)");
        CHECK(run.loss.size() == 3);
        CHECK(run.loss[0].y == 1.5);
        CHECK(std::isnan(run.loss[1].y));
        CHECK(std::isnan(run.loss[2].y));
        CHECK(run.loss[2].x == 6);
        CHECK(run.ranks == 2);
        CHECK(std::isnan(run.threads));
        CHECK(run.valid_loss.size() == 1);
        CHECK(run.valid_accuracy.empty());
        CHECK(run.unreadable_lines == 9);
        CHECK(run.ended.empty());
    }
    SECTION("lines of a step that was done twice, starts and ends") {
        const RunRecord run = run_with(
            folder, "{\"event\":\"start\",\"step\":0}\n" + step(1, R"(,"loss":5)") + step(2, R"(,"loss":4)") +
                        "{\"event\":\"end\",\"reason\":\"signal\",\"seconds\":10}\n{\"event\":\"start\","
                        "\"step\":1}\n" +
                        step(2, R"(,"loss":3)") +
                        "{\"event\":\"end\",\"reason\":\"completed\",\"seconds\":5}\n");
        REQUIRE(run.loss.size() == 2);
        CHECK(run.loss[1].y == 3);
        CHECK(run.seconds == 15);
        CHECK(run.starts == 2);
        CHECK(run.ended == "completed");
    }
    SECTION("shares of time") {
        const auto timed = [](int at, int samples, const std::string& rate, const std::string& waits) {
            return step(at, ",\"samples\":" + std::to_string(samples) + ",\"samples_per_s\":" + rate + waits);
        };
        // 2 s a step, of which 0.5 s are communication and 0.25 s input; then ten steps by one line; then
        // nonsense.
        const RunRecord run =
            run_with(folder, timed(1, 8, "4", R"(,"communication_s":0.5,"input_wait_s":0.25)") +
                                 timed(11, 88, "4", R"(,"communication_s":0.5,"input_wait_s":0.25)") +
                                 timed(12, 96, "0", "") + timed(13, 104, "null", "") +
                                 timed(14, 112, "8", R"(,"communication_s":99,"input_wait_s":-5)"));
        CHECK(run.step_seconds == Approx(2 + 20 + 1));
        CHECK(run.communication_seconds == Approx(0.5 + 5 + 1));
        CHECK(run.input_seconds == Approx(0.25 + 2.5));
        CHECK(run.timed_samples == 96);
    }
    SECTION("a configuration that cannot be read") {
        const RunRecord run = run_with(folder, step(1, ""), "[train\n");
        CHECK(run.config.empty());
        CHECK_THAT(run.config_fault, contains("config.ini line 1: expected [section]"));
    }
    CHECK_THROWS_AS(read_run((folder / "elsewhere").string()), Error);
}

TEST_CASE("runs are called by as much of their path as tells them apart", "[unit][app]") {
    std::vector<RunRecord> runs(5);
    for (std::size_t i = 0; const char* path : {"runs/a", "runs/b/", "old/a", ".", "/x/../y"})
        runs[i++].path = path;
    name_runs(runs);
    CHECK(runs[0].name == "runs/a");
    CHECK(runs[1].name == "b");
    CHECK(runs[2].name == "old/a");
    CHECK(runs[3].name == ".");
    CHECK(runs[4].name == "y");
}
