// What the kernel says of this machine: cores, NUMA nodes, memory, GPUs, and which program this is.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "app/doctor.hpp"
#include "trireme/base/parse.hpp"

namespace trireme::app::doctor {
namespace {

namespace fs = std::filesystem;

std::string first_line(const fs::path& path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return line;
}

/// What stands behind "name:" in a file of such lines.
std::string value_after(const fs::path& path, const std::string& name) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);)
        if (line.starts_with(name + ":")) return std::string(trim(line.substr(name.size() + 1)));
    return "";
}

/// Folders of this process's control groups that may hold files of `controller`, the innermost first: of both
/// versions, since a machine may have either or both.
std::vector<fs::path> control_groups(const std::string& root, const std::string& controller) {
    std::vector<fs::path> folders;
    std::ifstream file(root + "/proc/self/cgroup");
    for (std::string line; std::getline(file, line);) {  // "4:memory,x:/path", "0::/path"
        const std::size_t first = line.find(':'), second = line.find(':', first + 1);
        if (second == std::string::npos) continue;
        const std::vector<std::string> names = split(line.substr(first + 1, second - first - 1), ',');
        const bool unified = names.empty();
        if (!unified && std::find(names.begin(), names.end(), controller) == names.end()) continue;
        const fs::path base = root + "/sys/fs/cgroup" + (unified ? "" : "/" + controller);
        for (fs::path group = line.substr(second + 1);; group = group.parent_path()) {
            folders.push_back(base / group.relative_path());
            if (!group.has_relative_path()) break;
        }
    }
    return folders;
}

/// A checksum (FNV-1a, by words) of the program's file: builds of one version differ in it.
std::uint64_t program_checksum() {
    std::ifstream file("/proc/self/exe", std::ios::binary);
    std::uint64_t sum = 14695981039346656037ULL;
    std::vector<std::uint64_t> words(8192);
    while (file) {
        std::fill(words.begin(), words.end(), 0);
        file.read(reinterpret_cast<char*>(words.data()), static_cast<std::streamsize>(words.size() * 8));
        const std::size_t read = (static_cast<std::size_t>(file.gcount()) + 7) / 8;
        for (std::size_t i = 0; i < read; ++i) sum = (sum ^ words[i]) * 1099511628211ULL;
    }
    return sum;
}

}  // namespace

std::string short_list(const std::vector<int>& numbers) {
    std::string text;
    for (std::size_t i = 0; i < numbers.size();) {
        std::size_t last = i;
        while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
        text += (text.empty() ? "" : ",") + std::to_string(numbers[i]);
        if (last > i) text += "-" + std::to_string(numbers[last]);
        i = last + 1;
    }
    return text;
}

std::vector<int> numbers_of(const std::string& list) {
    std::vector<int> numbers;
    for (const std::string& part : split(list, ',')) {
        const std::vector<std::string> ends = split(part, '-');
        if (ends.empty()) continue;
        const auto first = parse_int(ends.front()), last = parse_int(ends.back());
        if (!first || !last) continue;
        for (auto number = *first; number <= *last; ++number) numbers.push_back(static_cast<int>(number));
    }
    return numbers;
}

std::vector<int> allowed_cores(const std::string& root) {
    return numbers_of(value_after(root + "/proc/self/status", "Cpus_allowed_list"));
}

std::vector<int> machine_cores(const std::string& root) {
    for (const fs::path& group : control_groups(root, "cpuset"))
        for (const char* name : {"cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"})
            if (const std::vector<int> cores = numbers_of(first_line(group / name)); !cores.empty())
                return cores;
    return numbers_of(first_line(root + "/sys/devices/system/cpu/online"));
}

std::string numa_nodes(const std::vector<int>& cores, const std::string& root) {
    std::vector<int> nodes;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(root + "/sys/devices/system/node", none)) {
        const std::string name = entry.path().filename().string();
        const auto number = name.starts_with("node") ? parse_int(name.substr(4)) : std::nullopt;
        if (!number) continue;
        const std::vector<int> here = numbers_of(first_line(entry.path() / "cpulist"));
        if (std::find_first_of(here.begin(), here.end(), cores.begin(), cores.end()) != here.end())
            nodes.push_back(static_cast<int>(*number));
    }
    std::sort(nodes.begin(), nodes.end());
    return nodes.empty() ? "?" : short_list(nodes);
}

Memory machine_memory(const std::string& root) {
    const auto in_bytes = [&](const char* name) {
        const std::string value = value_after(root + "/proc/meminfo", name);  // "24684092 kB"
        return 1024 * parse_int(value.substr(0, value.find(' '))).value_or(0);
    };
    Memory memory{.total = in_bytes("MemTotal"), .available = in_bytes("MemAvailable")};
    for (const fs::path& group : control_groups(root, "memory"))
        for (const char* name : {"memory.max", "memory.limit_in_bytes"}) {
            const auto limit = parse_int(first_line(group / name));  // "max": none
            if (limit && *limit > 0 && *limit < memory.usable()) memory.limit = *limit;
        }
    return memory;
}

int gpu_files(const std::string& root) {
    int count = 0;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(root + "/dev", none)) {
        const std::string name = entry.path().filename().string();
        if (name.starts_with("nvidia") && parse_int(name.substr(6))) ++count;
    }
    return count;
}

std::string build_identity() {
    std::ostringstream text;
    for (const auto& [name, version] : versions()) text << name << " " << version << "\n";
    text << "checksum of the program " << std::hex << program_checksum() << "\n";
    return text.str();
}

}  // namespace trireme::app::doctor
