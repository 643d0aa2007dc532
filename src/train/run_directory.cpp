#include "train/run_directory.hpp"

#include <filesystem>
#include <fstream>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"
#include "trireme/checkpoint/checkpoint.hpp"
#include "trireme/train/metrics.hpp"

namespace trireme {
namespace fs = std::filesystem;
namespace {

bool is_sample_trace(const fs::path& path) {
    const std::string name = path.filename().string();
    return name.starts_with("samples-") && name.ends_with(".csv");
}

std::vector<fs::path> children(const std::string& folder) {
    std::vector<fs::path> paths;
    std::error_code ignored;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored))
        paths.push_back(entry.path());
    return paths;
}

}  // namespace

RunDirectoryLock::RunDirectoryLock(const std::string& run_dir) {
    std::error_code error;
    fs::create_directories(run_dir, error);
    if (error) throw failure("run.dir=" + run_dir + ": cannot be created: " + error.message());
    lock_ = FileLock(run_dir + "/.lock", false);
    if (!lock_.held())
        throw usage_error("run.dir=" + run_dir +
                          ": another job is training here; give this one a directory of its own");
}

namespace {

void rewind_sample_trace(const fs::path& path, std::int64_t step) {
    std::ifstream in(path);
    std::string kept;
    for (std::string line; std::getline(in, line) && !in.eof();) {  // a line without its newline was cut off
        const auto number = parse_int(line.substr(0, line.find(',')));
        if (!number || *number <= step) kept += line + "\n";
    }
    write_whole(path.string(), kept);
}

/// Moves files to a new folder <run_dir>/old-<n>; nothing to move, no folder.
std::string move_aside(const std::string& run_dir, const std::vector<fs::path>& paths) {
    if (paths.empty()) return "";
    int number = 1;
    while (fs::exists(run_dir + "/old-" + std::to_string(number))) ++number;
    const std::string aside = run_dir + "/old-" + std::to_string(number);
    fs::create_directory(aside);
    for (const fs::path& path : paths) fs::rename(path, aside / path.filename());
    return aside;
}

}  // namespace

std::string set_earlier_run_aside(const std::string& run_dir) {
    std::vector<fs::path> earlier;
    for (const fs::path& path : children(run_dir)) {
        const std::string name = path.filename().string();
        if (name == "metrics.jsonl" || name == "config.ini" || name == "checkpoints" || is_sample_trace(path))
            earlier.push_back(path);
    }
    return move_aside(run_dir, earlier);
}

void rewind_run(const std::string& run_dir, std::int64_t step) {
    MetricsFile::rewind(run_dir, step);
    const std::vector<std::string> saved = step_checkpoints(run_dir);
    const std::string kept = step_checkpoint_path(run_dir, step);
    std::vector<fs::path> later;
    for (const std::string& path : saved)
        if (fs::path(path).filename() > fs::path(kept).filename()) later.emplace_back(path);
    move_aside(run_dir, later);
    for (const fs::path& path : children(run_dir))
        if (is_sample_trace(path)) rewind_sample_trace(path, step);
}

void refuse_precious_output(const std::string& output, const std::string& checkpoint) {
    if (!fs::exists(output)) return;
    const auto refuse = [&](const std::string& why) { throw usage_error("--output=" + output + ": " + why); };
    if (!fs::is_regular_file(output)) refuse("expected the name of a file to write");
    if (fs::equivalent(output, checkpoint)) refuse("this is the checkpoint");
}

void write_whole(const std::string& path, const std::string& text) {
    const std::string temporary = path + ".tmp";
    {
        std::ofstream out(temporary, std::ios::binary);
        out << text;
        out.flush();
        if (!out) throw failure(path + ": cannot be written");
    }
    fs::rename(temporary, path);
}

}  // namespace trireme
