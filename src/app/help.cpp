#include "app/help.hpp"

#include "app/text.hpp"

namespace trireme::app {
namespace {

constexpr std::size_t line_width = 100;

std::string section_of(const std::string& key) {
    return key.substr(0, key.find('.'));
}

/// What a user may write, and what happens without it.
std::string default_of(const ConfigKey& key) {
    if (key.planned) return key.fallback;
    return key.fallback.empty() ? (key.repeated ? "none" : "empty") : key.fallback;
}

void add_entry(std::string& text, const std::string& head, const std::string& help) {
    constexpr std::size_t column = 34;
    std::string line = "  " + head;
    if (line.size() + 2 > column) {
        text += line + "\n";
        line.clear();
    }
    for (const std::string& part : wrapped(help, line_width - column)) {
        line.resize(column, ' ');
        text += line + part + "\n";
        line.clear();
    }
}

void add_paragraph(std::string& text, const std::string& paragraph) {
    for (const std::string& line : wrapped(paragraph, line_width)) text += line + "\n";
}

std::string markdown_cell(const std::string& text) {
    std::string cell;
    for (const char c : text) cell += c == '|' ? "\\|" : c == '<' ? "&lt;" : std::string(1, c);
    return cell;
}

constexpr const char* markdown_head = R"(# Configuration

<!-- Generated: trireme --help-markdown > doc/configuration.md -->

A run is described by an INI file, by flags, or by both:

```sh
trireme train run.ini --train.batch=128 --optim.lr=3e-3
```

- The command line wins over the file, the file over the defaults below. What they add up to is written to `config.ini` in the run
  directory, which can be given to `trireme train` again as it stands.
- Every key is checked before any work: an unknown or abbreviated key, a value that does not parse or keys that contradict each
  other end the program with exit status 2 and name the nearest known key.
- `#` and `;` start a comment at the beginning of a line or after a blank. A value with such marks in it is written in double
  quotes, in which `\"` stands for a quote and `\\` for a backslash.
- Numbers have a decimal point under every locale. Truth values are `true` and `false` (also yes/no, on/off, 1/0).
- A key stands once, except `model.layer` and `optim.rule`. The first `--model.layer` on the command line replaces the lines of the
  file; `--model.layer="flatten | linear out=classes"` gives several at once.

```ini
[data]
train = data/train-*.h5

[model]
layer = flatten
layer = linear out=classes

[train]
epochs = 10
```
)";

}  // namespace

std::string overview_text() {
    std::string text =
        "Trireme trains neural networks on many processes at once.\n\n"
        "usage: trireme COMMAND [argument ...] [--option=value ...]\n"
        "       mpirun -n 4 trireme train run.ini [--section.key=value ...]\n\n"
        "commands:\n";
    Table table("<<");
    for (const Command& command : commands()) table.add({command.name, command.summary});
    text += table.text() + "\n";
    text +=
        "`trireme COMMAND --help` says more; `trireme --version` names the libraries.\n\n"
        "exit status: 0 done; 1 failed while running; 2 wrong usage or configuration; 3 bad data or "
        "checkpoint;\n"
        "             75 stopped early with a checkpoint saved, start again to go on\n";
    return text;
}

std::string command_help_text(const Command& command) {
    std::string text = "usage: trireme " + command.name + " " + command.arguments + "\n\n";
    add_paragraph(text, command.help);
    if (!command.options.empty()) text += "\noptions:\n";
    for (const CommandOption& option : command.options)
        add_entry(text, "--" + option.name + (option.value.empty() ? "" : "=" + option.value), option.help);
    if (!command.takes_keys) return text;

    text +=
        "\nconfiguration (key=default), in the file as lines of a [section], on the command line as "
        "--section.key=value:\n";
    std::string section;
    for (const ConfigKey& key : config_keys()) {
        if (section_of(key.key) != section) {
            section = section_of(key.key);
            text += "\n[" + section + "]\n";
        }
        add_entry(text, key.key + (key.fallback.empty() ? "" : "=" + key.fallback),
                  key.help + (key.planned ? " (announced; only the default works)" : ""));
    }
    return text;
}

std::string configuration_markdown() {
    std::string text = markdown_head, section;
    for (const ConfigKey& key : config_keys()) {
        if (section_of(key.key) != section) {
            section = section_of(key.key);
            text += "\n## [" + section + "]\n\n| key | default | meaning |\n|---|---|---|\n";
        }
        const std::string fallback = default_of(key);
        text += "| `" + key.key.substr(section.size() + 1) + "` | " +
                (key.fallback.empty() ? fallback : "`" + fallback + "`") + " | " + markdown_cell(key.help) +
                (key.repeated ? " May be repeated." : "") +
                (key.planned ? " *Announced: only the default works in this version.*" : "") + " |\n";
    }
    return text;
}

}  // namespace trireme::app
