// Private to train: the rows of the configuration table, and the lines of an INI text.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trireme/train/config.hpp"

namespace trireme {

/// What a configuration file may say of one key, and how it is read and written.
struct ConfigRow {
    ConfigKey about;
    std::function<std::string(const Config&)> get;         ///< absent for planned keys: they are in no struct
    std::function<void(Config&, const std::string&)> set;  ///< absent for planned keys
};

/// All rows, section by section; and those from [train] on.
std::vector<ConfigRow> make_config_rows();
std::vector<ConfigRow> make_training_rows();

/// The key that was probably meant by an unknown one, names of other programs (learning_rate) included; or
/// nothing.
std::string nearest_config_key(const std::string& word);

/// An entry of an INI text: "section.key", its value without quotes, and where it stands.
struct IniEntry {
    std::string key, value;
    int line = 0;
};

/// @throws Error (bad_usage) naming source and line where a line is neither section, nor entry, nor comment.
std::vector<IniEntry> read_ini(const std::string& text, const std::string& source);

/// A value as it has to be written so that read_ini gives it back: in quotes where it needs them.
std::string ini_value(const std::string& value);

/// "run.ini line 12: "
std::string place_in(const std::string& source, int line);

}  // namespace trireme
