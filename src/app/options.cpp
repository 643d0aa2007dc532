#include "app/options.hpp"

#include <algorithm>
#include <boost/program_options.hpp>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "app/commands.hpp"
#include "train/config_table.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"
#include "trireme/comm/agree.hpp"

namespace trireme::app {
namespace {

namespace po = boost::program_options;

const char* const help_hint = "; `trireme --help` lists the commands";

const Command& command_of(const std::string& name) {
    if (const Command* command = find_command(name)) return *command;
    if (name.starts_with("-")) throw usage_error("a command comes first, before " + name + help_hint);
    std::vector<std::string> names;
    for (const Command& command : commands()) names.push_back(command.name);
    const std::string meant = nearest(name, names);
    throw usage_error("unknown command " + name +
                      (meant.empty() ? help_hint : "; did you mean " + meant + "?"));
}

po::options_description options_of(const Command& command) {
    po::options_description known;
    known.add_options()("help", po::value<bool>()->zero_tokens());
    for (const CommandOption& option : command.options) {
        if (option.value.empty())
            known.add_options()(option.name.c_str(), po::value<bool>()->zero_tokens());
        else
            known.add_options()(option.name.c_str(), po::value<std::string>());
    }
    if (command.takes_keys)
        for (const ConfigKey& key : config_keys())
            known.add_options()(key.key.c_str(), po::value<std::string>());
    return known;
}

/// Boost takes `--data.valid=` for an option without a value; here it is one with an empty value.
std::vector<po::option> take_empty_value(std::vector<std::string>& words) {
    const std::string& word = words.front();
    if (!word.starts_with("--") || !word.ends_with("=") || word.find('=') + 1 != word.size()) return {};
    po::option option;
    option.string_key = word.substr(2, word.size() - 3);
    option.value = {""};
    option.original_tokens = {word};
    words.erase(words.begin());
    return {option};
}

std::string nearest_option(const Command& command, const std::string& name) {
    std::vector<std::string> names = {"help"};
    for (const CommandOption& option : command.options) names.push_back(option.name);
    const std::string key = command.takes_keys ? nearest_config_key(name) : "";
    if (!key.empty()) names.push_back(key);
    const std::string near = nearest(name, names);
    return near.empty() ? key : near;
}

void check_arguments(const Command& command, const CommandLine& line) {
    const std::string usage = "; usage: trireme " + command.name + " " + command.arguments;
    for (const std::string& word : line.arguments) {
        const bool setting =
            command.reads_ini && word.find('=') != std::string::npos && !word.ends_with(".ini");
        if (word.starts_with("-") || setting)
            throw usage_error("unexpected argument " + word + "; options are written --name=value");
    }
    if (line.arguments.size() > command.most_arguments)
        throw usage_error("unexpected argument " + line.arguments[command.most_arguments] + usage);
    if (line.arguments.size() < command.least_arguments)
        throw usage_error("`trireme " + command.name + "`: an argument is missing" + usage);
}

/// The name of the option that Boost complains about: it may come as "--name=value".
std::string bare_name(const std::string& option) {
    const std::size_t begin = std::min(option.find_first_not_of('-'), option.size());
    return option.substr(begin, option.find('=') - begin);
}

/// Puts one parsed option where it belongs; a name may be given once, unless its key is a repeated one.
void sort_option(const Command& command, const po::option& parsed, CommandLine& line,
                 std::set<std::string>& seen) {
    if (parsed.position_key >= 0 || parsed.string_key.empty()) {
        line.arguments.insert(line.arguments.end(), parsed.value.begin(), parsed.value.end());
        return;
    }
    const std::string& name = parsed.string_key;
    const std::string value = parsed.value.empty() ? "" : parsed.value.front();
    if (name == "help") {
        line.help = true;
        return;
    }
    const auto& keys = config_keys();
    const auto key =
        std::find_if(keys.begin(), keys.end(), [&](const ConfigKey& k) { return k.key == name; });
    const bool repeated = command.takes_keys && key != keys.end() && key->repeated;
    if (!seen.insert(name).second && !repeated) throw usage_error("--" + name + " is given twice");
    (command.takes_keys && key != keys.end() ? line.settings : line.options).emplace_back(name, value);
}

}  // namespace

bool CommandLine::has(const std::string& name) const {
    return std::any_of(options.begin(), options.end(),
                       [&](const auto& option) { return option.first == name; });
}

std::string CommandLine::option(const std::string& name, const std::string& fallback) const {
    for (const auto& [key, value] : options)
        if (key == name) return value;
    return fallback;
}

CommandLine parse_command_line(const std::vector<std::string>& words) {
    CommandLine line;
    if (words.empty()) return line;
    const std::string& first = words.front();
    line.help = first == "--help" || first == "-h" || first == "help";
    line.version = first == "--version";
    line.markdown = first == "--help-markdown";
    if (line.version || line.markdown) return line;
    std::vector<std::string> rest(words.begin() + 1, words.end());
    if (line.help) {
        if (first == "help" && !rest.empty()) line.command = command_of(rest.front()).name;
        return line;
    }

    const Command& command = command_of(first);
    line.command = command.name;
    for (std::string& word : rest)
        if (word == "-h") word = "--help";
    const po::options_description known = options_of(command);
    const auto style = po::command_line_style::allow_long | po::command_line_style::long_allow_adjacent |
                       po::command_line_style::long_allow_next;  // no guessing, no short options
    try {
        po::positional_options_description arguments;
        arguments.add("argument", -1);
        po::options_description all;
        all.add(known).add_options()("argument", po::value<std::vector<std::string>>());
        const po::parsed_options parsed = po::command_line_parser(rest)
                                              .options(all)
                                              .positional(arguments)
                                              .style(style)
                                              .extra_style_parser(take_empty_value)
                                              .run();
        std::set<std::string> seen;
        for (const po::option& option : parsed.options) sort_option(command, option, line, seen);
    } catch (const po::unknown_option& error) {
        const std::string name = bare_name(error.get_option_name());
        const std::string meant = nearest_option(command, name);
        throw usage_error("unknown option --" + name +
                          (meant.empty() ? "; `trireme " + command.name + " --help` lists them"
                                         : "; did you mean --" + meant + "?"));
    } catch (const po::invalid_command_line_syntax& error) {
        const std::string name = bare_name(error.get_option_name());
        const bool extra = error.kind() == po::invalid_syntax::extra_parameter;
        throw usage_error("--" + name + (extra ? " takes no value" : " needs a value: --" + name + "=..."));
    } catch (const po::error& error) {
        throw usage_error(error.what());
    }
    if (!line.help) check_arguments(command, line);
    return line;
}

void apply_settings(Config& config, const Settings& settings) {
    std::set<std::string> replaced;
    for (const auto& [key, value] : settings) {
        const auto& keys = config_keys();
        const auto known =
            std::find_if(keys.begin(), keys.end(), [&](const ConfigKey& k) { return k.key == key; });
        if (known != keys.end() && known->repeated && replaced.insert(key).second)
            set_config(config, key, "");
        try {
            set_config(config, key, value);
        } catch (const Error& error) {
            const bool named = std::string_view(error.what()).starts_with(key);
            throw Error(error.status(), (named ? "--" : "") + std::string(error.what()), error.scope());
        }
    }
}

Config resolve_config(Communicator& comm, const std::string& ini_path, const Settings& settings) {
    Config config;
    if (!ini_path.empty()) {
        std::string text;
        agreed_by_one(comm, [&] {
            if (!std::filesystem::is_regular_file(ini_path))
                throw usage_error(ini_path + ": there is no such configuration file");
            std::ifstream file(ini_path, std::ios::binary);
            std::ostringstream content;
            content << file.rdbuf();
            // An empty file sets the failbit of the copy, but is a configuration all the same.
            if (file.bad() || content.bad() || !file.is_open())
                throw usage_error(ini_path + ": the configuration file cannot be read");
            if (content.str().find('\0') != std::string::npos)
                throw usage_error(ini_path + ": expected a configuration file of text, found binary data");
            text = content.str();
        });
        config = config_from_text(broadcast_text(comm, text), ini_path);
    }
    apply_settings(config, settings);
    return config;
}

std::string default_run_dir(const std::string& ini_path) {
    const std::string stem = std::filesystem::path(ini_path).stem().string();
    return "runs/" + (stem.empty() ? "train" : stem);
}

}  // namespace trireme::app
