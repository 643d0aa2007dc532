// Parallel HDF5 in the run directory: whether all ranks see it as one folder, what it gives back, how fast.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "app/doctor.hpp"
#include "app/text.hpp"
#include "trireme/base/clock.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"
#include "trireme/comm/agree.hpp"
#include "trireme/io/hdf5.hpp"

namespace trireme::app::doctor {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t elements_of_rank = 2 << 20;  // 8 MB of float32
constexpr std::int64_t most_elements = 128 << 20;   // 512 MB in all
constexpr std::int64_t little_space = 1000 * 1000 * 1000;

/// Removes the file in the end, whatever happens meanwhile. On the rank that made it.
class Removed {
public:
    Removed(const Communicator& world, std::string path) : path_(world.rank() == 0 ? std::move(path) : "") {}
    ~Removed() {
        std::error_code ignored;
        if (!path_.empty()) fs::remove(path_, ignored);
    }
    Removed(const Removed&) = delete;
    Removed& operator=(const Removed&) = delete;

private:
    std::string path_;
};

[[noreturn]] void fail_by_system(const std::string& what) {
    throw failure(what + ": " + std::strerror(errno));
}

/// A file with a mark in it, for which the disk has room. HDF5 would say less, and later.
void prepare_file(const std::string& dir, const std::string& path, const std::string& mark,
                  std::int64_t bytes) {
    if (!fs::exists(dir)) throw failure("there is no such directory");
    if (!fs::is_directory(dir)) throw failure("this is no directory");
    rlimit limit{};
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        limit.rlim_cur < static_cast<rlim_t>(2 * bytes))
        throw failure("files are limited to " + bytes_text(static_cast<double>(limit.rlim_cur)) +
                      " here (ulimit -f)");
    const int fd = ::open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0666);
    if (fd < 0) fail_by_system("no file can be written here");
    const bool room =
        ::fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, bytes) == 0 || errno == EOPNOTSUPP || errno == ENOSYS;
    const bool written = room && ::write(fd, mark.data(), mark.size()) == static_cast<ssize_t>(mark.size());
    const int error = errno;
    ::close(fd);
    errno = error;
    if (!written) fail_by_system("no room for " + bytes_text(static_cast<double>(bytes)));
}

/// What another rank has just written has to be there for this one too.
void find_mark(const std::string& path, const std::string& mark) {
    std::ifstream file(path);
    std::string found;
    if (!file || !std::getline(file, found) || found != mark)
        throw failure(
            "does not see the file that rank 0 has just written: all ranks need the same directory, "
            "on a file system that all hosts share");
}

float value_at(std::int64_t i) {
    return static_cast<float>(i % 65521);
}

std::vector<float> values_in(Range range) {
    std::vector<float> values;
    values.reserve(static_cast<std::size_t>(range.size()));
    for (std::int64_t i = range.begin; i < range.end; ++i) values.push_back(value_at(i));
    return values;
}

/// Seconds in which all ranks have written their parts and the disk has them.
double write_together(Communicator& world, const std::string& path, std::int64_t count) {
    const Range mine = part_of({0, count}, world.size(), world.rank());
    const std::vector<float> values = values_in(mine);
    world.barrier();
    const Stopwatch watch;
    io::File file(path, io::Access::create, world);
    io::Dataset dataset = file.create("/values", DType::f32, Shape{count});
    agreed_by_all(world, [&] { dataset.write_flat(mine, DType::f32, values.data()); });
    file.flush();
    file.close();
    return all_reduce_value(world, watch.seconds(), Reduce::max);
}

/// Each rank reads what one far from it has written. Returns the seconds; `wrong`: what came back wrong here.
double read_together(Communicator& world, const std::string& path, std::int64_t count, std::string& wrong) {
    const int writer = (world.rank() + std::max(1, world.size() / 2)) % world.size();
    const Range range = part_of({0, count}, world.size(), writer);
    std::vector<float> values(static_cast<std::size_t>(range.size()));
    world.barrier();
    const Stopwatch watch;
    {
        const io::File file(path, io::Access::read, world);
        agreed_by_all(world, [&] { file.open("/values").read_flat(range, DType::f32, values.data()); });
    }
    const double seconds = all_reduce_value(world, watch.seconds(), Reduce::max);
    for (std::int64_t i = range.begin; i < range.end && wrong.empty(); ++i)
        if (const float value = values[static_cast<std::size_t>(i - range.begin)]; value != value_at(i))
            wrong = "element " + std::to_string(i) + ", written by rank " + std::to_string(writer) + ", is " +
                    fixed(value, 0) + ", expected " + fixed(value_at(i), 0);
    return seconds;
}

std::int64_t free_bytes_in(Communicator& world, const std::string& dir) {
    std::int64_t free = -1;
    std::error_code unknown;
    if (world.rank() == 0)
        if (const fs::space_info space = fs::space(dir, unknown); !unknown)
            free = static_cast<std::int64_t>(space.available);
    return broadcast_value(world, free);
}

}  // namespace

std::string existing_folder(Communicator& world, const std::string& dir) {
    std::string found;
    if (world.rank() == 0) {
        std::error_code no;  // below a file, or in a folder that may not be entered
        fs::path path = fs::path(dir).lexically_normal();
        while (!path.empty() && !fs::exists(path, no) && path.has_relative_path()) path = path.parent_path();
        found = path.empty() ? "." : path.string();
    }
    return broadcast_text(world, found);
}

FileRates check_files(Communicator& world, const std::string& dir, Findings& findings) {
    std::error_code unknown;
    const std::string process = std::to_string(getpid()) + "-" + std::to_string(now_seconds());
    const std::string mark = "trireme doctor " + broadcast_text(world, process);
    const std::string path =
        (fs::path(dir) / (".doctor-" + broadcast_text(world, std::to_string(getpid())) + ".h5")).string();
    const std::string what = "parallel HDF5, one file of all ranks in " + dir;
    const std::int64_t count = std::min(most_elements, elements_of_rank * world.size());
    const double bytes = 4.0 * static_cast<double>(count);

    FileRates rates;
    const fs::path whole = (fs::absolute(dir, unknown) / "").lexically_normal();  // ends with a slash
    rates.path = broadcast_text(world, whole.parent_path().string());
    rates.free_bytes = free_bytes_in(world, dir);
    try {
        const Removed removed(world, path);
        agreed_by_one(world, [&] { prepare_file(dir, path, mark, static_cast<std::int64_t>(bytes)); });
        agreed_by_all(world, [&] { find_mark(path, mark); });
        rates.write_bytes_per_s = bytes / write_together(world, path, count);
        std::string wrong;
        rates.read_bytes_per_s = bytes / read_together(world, path, count, wrong);
        world.barrier();  // nobody reads any more
        findings.check(what, wrong,
                       bytes_text(bytes) + " written to the disk at " + bytes_text(rates.write_bytes_per_s) +
                           "/s, read (perhaps from a cache) at " + bytes_text(rates.read_bytes_per_s) + "/s");
    } catch (const Error& error) {
        if (error.scope() != Scope::all_ranks) throw;
        rates.write_bytes_per_s = rates.read_bytes_per_s = 0;
        findings.settle(what, error.what());
    }
    if (rates.free_bytes >= 0 && rates.free_bytes < little_space)
        findings.note("only " + bytes_text(static_cast<double>(rates.free_bytes)) + " are free in " + dir);
    return rates;
}

}  // namespace trireme::app::doctor
