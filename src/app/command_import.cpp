#include <algorithm>
#include <cmath>
#include <map>

#include "app/commands.hpp"
#include "app/text.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"
#include "trireme/comm/agree.hpp"
#include "trireme/data/import.hpp"

namespace trireme::app {
namespace {

[[noreturn]] void refuse(const std::string& option, const std::string& value, const std::string& expected) {
    throw usage_error("--" + option + "=" + value + ": expected " + expected);
}

std::int64_t integer(const CommandLine& line, const std::string& option, std::int64_t fallback,
                     std::int64_t least, std::int64_t most) {
    if (!line.has(option)) return fallback;
    const auto number = parse_int(line.option(option));
    if (!number || *number < least || *number > most)
        refuse(option, line.option(option),
               most < 1000 ? "an integer from " + std::to_string(least) + " to " + std::to_string(most)
                           : "an integer, at least " + std::to_string(least));
    return *number;
}

std::string choice(const CommandLine& line, const std::string& option, const std::string& fallback,
                   const std::vector<std::string>& names) {
    const std::string value = line.option(option, fallback);
    if (std::find(names.begin(), names.end(), value) == names.end())
        refuse(option, value, joined(names, ", "));
    return value;
}

Shape shape_of(const std::string& text) {
    std::string commas = text;
    std::replace(commas.begin(), commas.end(), 'x', ',');
    Shape shape;
    for (const std::string& part : split(commas, ',')) {
        const auto extent = parse_int(part);
        if (!extent || *extent < 1 || shape.rank() == Shape::max_rank - 1)
            refuse("shape", text,
                   "up to " + std::to_string(Shape::max_rank - 1) + " extents, such as 1,28,28");
        shape.push_back(*extent);
    }
    return shape;
}

std::vector<double> fractions_of(const std::string& text) {
    std::vector<double> fractions;
    double sum = 0;
    for (const std::string& part : split(text, ',')) {
        const auto fraction = parse_real(part);
        if (!fraction || !(*fraction >= 0) || *fraction > 1) sum = 2;
        fractions.push_back(fraction.value_or(0));
        sum += fractions.back();
    }
    if (fractions.size() < 2 || fractions.size() > 3 || std::fabs(sum - 1) > 1e-6)
        refuse("split", text,
               "fractions of train, valid and perhaps test that add up to 1, such as 0.8,0.1,0.1");
    return fractions;
}

std::string dtype_of_name(const CommandLine& line) {
    static const std::map<std::string, std::string> short_names = {
        {"f32", "float32"}, {"u8", "uint8"}, {"i16", "int16"}, {"i32", "int32"}};
    const std::string name = line.option("dtype", "auto");
    if (const auto found = short_names.find(name); found != short_names.end()) return found->second;
    return choice(line, "dtype", "auto", {"auto", "float32", "uint8", "int16", "int32"});
}

ImportOptions options_of(const CommandLine& line) {
    ImportOptions options;
    options.inputs = line.arguments;
    options.output = line.option("output");
    if (options.output.empty()) throw usage_error("`trireme import` needs --output=DIR");
    options.kind = choice(line, "kind", "auto", {"auto", "csv", "idx", "text"});
    options.label = line.option("label", options.label);
    options.header = choice(line, "header", "auto", {"auto", "yes", "no"});
    options.separator = choice(line, "separator", "auto", {"auto", ",", ";", "tab", "space"});
    if (line.has("split")) options.split = fractions_of(line.option("split"));
    if (line.has("split") && line.has("name"))
        throw usage_error("--split and --name: with a split the parts are called train, valid and test");
    options.name = line.option("name", options.name);
    options.shards = integer(line, "shards", 1, 1, 100000);
    options.dtype = dtype_of_name(line);
    options.shape = shape_of(line.option("shape"));
    options.seed = static_cast<std::uint64_t>(integer(line, "seed", 1, 0, INT64_MAX));
    options.chunk_rows = integer(line, "chunk-rows", 0, 0, INT64_MAX);
    options.deflate = static_cast<int>(integer(line, "deflate", 0, 0, 9));
    if (options.deflate > 0 && options.chunk_rows == 0)
        throw usage_error("--deflate=" + std::to_string(options.deflate) + " needs --chunk-rows above 0");
    return options;
}

/// A shell pattern for the files of a part.
std::string pattern_of(const ImportedPart& part) {
    if (part.files.size() == 1) return part.files.front();
    const std::string& first = part.files.front();
    return first.substr(0, first.rfind('-')) + "-*.h5";
}

std::string contents_of(const ImportResult& result) {
    if (result.tokens) return "each token a byte, the largest " + std::to_string(result.classes - 1);
    std::string text = "each sample " + result.sample.text() + " " + result.x_type;
    if (result.classes > 0)
        return text + ", labels " + result.y_type + " of " + std::to_string(result.classes) + " classes";
    return text + (result.y_type == "none" ? ", no targets" : ", targets " + result.y_type);
}

std::string report_of(const ImportResult& result) {
    Table table("<>><");
    for (const ImportedPart& part : result.parts)
        table.add({part.name, grouped(part.rows) + (result.tokens ? " tokens" : " rows"),
                   std::to_string(part.files.size()) + (part.files.size() == 1 ? " file" : " files"),
                   part.files.empty() ? "" : pattern_of(part)});
    std::string text = table.text(0) + contents_of(result);
    std::string next = "\nnext: trireme train";
    for (const ImportedPart& part : result.parts)
        if (!part.files.empty()) next += " --data." + part.name + "='" + pattern_of(part) + "'";
    const bool trains = (result.tokens || result.y_type != "none") && result.parts.front().name == "train";
    if (result.tokens) next += " --model.arch=gpt";
    if (result.classes == 0) next += " --model.loss=mse";
    return text + (trains ? next + " --train.epochs=10\n"
                          : "\nnext: trireme info '" + pattern_of(result.parts.front()) + "'\n");
}

int run(Runtime& runtime, const CommandLine& line, const Config&) {
    const ImportOptions options = options_of(line);
    agreed_by_one(runtime.session.world(), [&] { print(report_of(import_data(options))); });
    return 0;
}

}  // namespace

Command import_command() {
    return {
        .name = "import",
        .arguments = "INPUT ... --output=DIR [--option=value ...]",
        .summary = "CSV, IDX or text files (.gz too) into sharded HDF5, with a split",
        .help =
            "Reads a CSV file (or several with the same columns), a pair of IDX files (images and labels, as "
            "of "
            "MNIST), or a text (one file or several, which follow each other), compressed or not, and writes "
            "<part>-000.h5, <part>-001.h5, ... into the directory: with x and y, or, from a text, with "
            "tokens, "
            "one for each byte. Streams: the input may be larger than memory.",
        .options =
            {{"output", "DIR", "Where the files go."},
             {"kind", "KIND",
              "auto (text where the name ends in .txt or .txt.gz, else by content), csv, idx, text."},
             {"label", "COLUMN",
              "CSV: name or index of the label's column (0 is the first, -1 the last), last, none. "
              "Default: last."},
             {"header", "WORD", "CSV: whether the first line names the columns: auto, yes, no."},
             {"separator", "MARK", "CSV: auto, or one of , ; tab space."},
             {"split", "A,B[,C]",
              "Fractions that go to train, valid and test: rows are drawn by --seed; a text is cut, its "
              "first A to train."},
             {"name", "PART", "Name of the part where there is no split. Default: train."},
             {"shards", "N", "Files for each part. Default: 1."},
             {"dtype", "TYPE",
              "Type of x: auto (IDX as stored, CSV float32), float32, uint8, int16, int32; also f32, "
              "u8, i16, i32. A text is uint8."},
             {"shape", "EXTENTS",
              "Extents of a sample, such as 1,28,28. Default: as stored; CSV: the number of columns."},
             {"seed", "N", "Seed of the split. Default: 1."},
             {"chunk-rows", "N", "Rows or tokens in a chunk of the files; 0 (the default): contiguous."},
             {"deflate", "LEVEL", "Compression, 1 to 9; needs --chunk-rows. Default: 0, none."}},
        .least_arguments = 1,
        .most_arguments = 1000000,
        .across_ranks = false,
        .own_mesh = false,
        .run = run,
    };
}

}  // namespace trireme::app
