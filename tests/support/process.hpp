#pragma once
// Child processes for tests of the program: start, watch, signal, and read what they wrote.

#include <sys/types.h>

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::testing {

struct Options {
    double timeout = 60;  // seconds until everything that was started is killed
    std::map<std::string, std::string> env =
        {};                          // on top of the environment that this process was started with
    std::filesystem::path cwd = {};  // empty: this process's own
};

struct Result {
    int status = -1;         // exit status; 128 + signal for a death by signal
    std::string out, err;    // everything written to stdout and stderr
    double seconds = 0;      // from start to end
    bool timed_out = false;  // killed after Options::timeout
};

// A running child with its descendants, in a process group of its own. Its output goes to memory files, so it
// never blocks on a reader. Destroying it while it runs kills it and its descendants.
class Process {
public:
    Process(const std::vector<std::string>& argv, const Options& options);
    ~Process();
    Process(Process&& other) noexcept;
    Process& operator=(Process&&) = delete;

    Result wait();  // until the end or the timeout; the same result when called again
    bool running();
    void kill(int signal) const;  // the child itself (under mpirun: the launcher)

    pid_t pid() const { return pid_; }
    std::string out() const;  // what it has written so far
    std::string err() const;
    bool wait_for_output(std::string_view text,
                         double seconds = 30);  // on stdout or stderr; false when it ended without
    std::vector<pid_t> descendants() const;
    std::map<int, pid_t> ranks() const;  // the processes that run trireme, by MPI rank (0 without a launcher)

private:
    double age() const;  // seconds since the start
    void kill_all() const;

    pid_t pid_ = -1;
    int out_ = -1, err_ = -1;
    double start_ = 0, timeout_ = 0;
    bool done_ = false;
    Result result_;
};

Process start(const std::vector<std::string>& argv, const Options& options = {});
Result run(const std::vector<std::string>& argv, const Options& options = {});

// The command line of trireme on that many ranks; 0 ranks: one process without a launcher.
std::vector<std::string> trireme_command(int ranks, const std::vector<std::string>& args);
// The command line of one job whose ranks differ: for each the launcher's options, the program, its
// arguments.
std::vector<std::string> ranks_unlike(const std::vector<std::vector<std::string>>& ranks);
Process start_trireme(int ranks, const std::vector<std::string>& args, const Options& options = {});
Result trireme(int ranks, const std::vector<std::string>& args, const Options& options = {});

std::filesystem::path trireme_exe();  // $TRIREME_EXE, or the one of this build
std::filesystem::path source_dir();   // $TRIREME_SOURCE_DIR: the repository
std::filesystem::path
shared_dir();  // $TRIREME_SHARED_DIR: large data beside the repository; empty where there is none

// The environment at the first call, without what an MPI launcher or MPI itself put there: what children
// start from.
const std::map<std::string, std::string>& start_environment();

// A new directory, removed with all its content at the end of the scope.
class TempDir {
public:
    TempDir();
    ~TempDir();
    TempDir(const TempDir&) = delete;
    TempDir& operator=(const TempDir&) = delete;

    const std::filesystem::path& path() const { return path_; }
    std::filesystem::path operator/(const std::filesystem::path& name) const { return path_ / name; }

private:
    std::filesystem::path path_;
};

// How often a text has this part.
int count_of(std::string_view text, std::string_view part);

std::string read_file(const std::filesystem::path& path);
void write_file(const std::filesystem::path& path, std::string_view content);  // creates its folders

}  // namespace trireme::testing
