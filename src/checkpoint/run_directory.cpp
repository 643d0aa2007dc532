#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "checkpoint/format.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"
#include "trireme/comm/agree.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view step_prefix = "step-", suffix = ".h5", temporary_mark = ".h5.tmp-";

fs::path folder_in(const std::string& run_dir) {
    return fs::path(run_dir) / "checkpoints";
}

/// The number in "step-00000042.h5", or nothing.
std::optional<std::int64_t> step_of(std::string_view name) {
    if (!name.starts_with(step_prefix) || !name.ends_with(suffix)) return std::nullopt;
    name.remove_prefix(step_prefix.size());
    name.remove_suffix(suffix.size());
    const bool digits = std::all_of(name.begin(), name.end(), [](char c) { return '0' <= c && c <= '9'; });
    return digits ? parse_int(name) : std::nullopt;
}

std::vector<fs::path> files_in(const fs::path& folder) {
    std::vector<fs::path> files;
    std::error_code code;
    for (fs::directory_iterator entry(folder, code), end; !code && entry != end; entry.increment(code))
        files.push_back(entry->path());
    return files;
}

/// Empty when the checkpoint is whole, else why it is not.
std::string fault_of(const std::string& path) {
    try {
        checkpoint::require_whole(path);
        return "";
    } catch (const std::exception& error) {
        return error.what();
    }
}

/// Only checkpoints that can be resumed from count: damaged ones must not push them out. Older damaged ones
/// go too.
void remove_old(const std::string& run_dir, std::int64_t keep) {
    std::int64_t kept = 0;
    std::error_code ignored;  // what cannot be removed does no harm
    for (const std::string& path : step_checkpoints(run_dir)) {
        if (kept < std::max<std::int64_t>(keep, 1))
            kept += fault_of(path).empty() ? 1 : 0;
        else
            fs::remove(path, ignored);
    }
    for (const fs::path& path : files_in(folder_in(run_dir)))
        if (path.filename().string().find(temporary_mark) != std::string::npos) fs::remove(path, ignored);
}

}  // namespace

std::string step_checkpoint_path(const std::string& run_dir, std::int64_t step) {
    std::array<char, 40> name{};
    std::snprintf(name.data(), name.size(), "step-%08lld.h5", static_cast<long long>(step));
    return (folder_in(run_dir) / name.data()).string();
}

std::string best_checkpoint_path(const std::string& run_dir) {
    return (folder_in(run_dir) / "best.h5").string();
}

std::vector<std::string> step_checkpoints(const std::string& run_dir) {
    std::vector<std::pair<std::int64_t, std::string>> found;
    for (const fs::path& path : files_in(folder_in(run_dir)))
        if (const auto step = step_of(path.filename().string())) found.emplace_back(*step, path.string());
    std::sort(found.rbegin(), found.rend());
    std::vector<std::string> paths;
    for (auto& [step, path] : found) paths.push_back(std::move(path));
    return paths;
}

std::optional<std::string> newest_checkpoint(Communicator& comm, const std::string& run_dir,
                                             std::vector<std::string>& rejected) {
    std::string newest, faults;  // the faults one a line
    agreed_by_one(comm, [&] {
        for (const std::string& path : step_checkpoints(run_dir)) {
            const std::string fault = fault_of(path);
            if (fault.empty()) {
                newest = path;
                break;
            }
            std::string line = fault.find(path) == std::string::npos ? path + ": " + fault : fault;
            std::replace(line.begin(), line.end(), '\n', ' ');
            faults += line + "\n";
        }
    });
    newest = broadcast_text(comm, newest);
    rejected = split(broadcast_text(comm, faults), '\n');
    if (!rejected.empty()) rejected.pop_back();  // what follows the last line's end
    return newest.empty() ? std::nullopt : std::optional(newest);
}

void retain_checkpoints(Communicator& comm, const std::string& run_dir, std::int64_t keep) {
    agreed_by_one(comm, [&] { remove_old(run_dir, keep); });
}

}  // namespace trireme
