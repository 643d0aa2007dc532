#include "support/process.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>

namespace trireme::testing {

namespace fs = std::filesystem;

namespace {

constexpr auto poll_interval = std::chrono::milliseconds(2);

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

[[noreturn]] void fail(const std::string& what) {
    throw std::system_error(errno, std::generic_category(), what);
}

int memory_file(const char* name) {
    const int file = memfd_create(name, MFD_CLOEXEC);
    if (file < 0) fail("memfd_create");
    return file;
}

std::string content(int file) {
    std::string text(static_cast<size_t>(lseek(file, 0, SEEK_CUR)),
                     '\0');  // the offset is shared with the writers
    size_t done = 0;
    while (done < text.size()) {
        const auto count = pread(file, text.data() + done, text.size() - done, static_cast<off_t>(done));
        if (count <= 0) break;
        done += static_cast<size_t>(count);
    }
    text.resize(done);
    return text;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
    std::vector<char*> result;
    for (auto& string : strings) result.push_back(string.data());
    result.push_back(nullptr);
    return result;
}

std::vector<std::string> environment(const Options& options) {
    auto merged = start_environment();
    for (const auto& [name, value] : options.env) merged[name] = value;
    std::vector<std::string> result;
    for (const auto& [name, value] : merged) result.push_back(name + "=" + value);
    return result;
}

// Runs in the forked child, where only calls that are safe in a signal handler may be made.
[[noreturn]] void become(char** argv, char** envp, const char* cwd, int in, int out, int err) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGUSR1, SIGUSR2}) ::signal(signal, SIG_DFL);
    dup2(in, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    if (cwd == nullptr || chdir(cwd) == 0) execvpe(argv[0], argv, envp);
    constexpr std::string_view message = "could not be executed: ";
    (void)!write(STDERR_FILENO, message.data(), message.size());
    (void)!write(STDERR_FILENO, argv[0], std::strlen(argv[0]));
    _exit(127);
}

std::vector<std::pair<pid_t, pid_t>> children_and_parents() {
    std::vector<std::pair<pid_t, pid_t>> result;
    for (const auto& entry : fs::directory_iterator("/proc")) {
        const auto name = entry.path().filename().string();
        if (!std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; })) continue;
        std::ifstream file(entry.path() / "stat");
        std::string stat;
        std::getline(file, stat);
        const auto end_of_name = stat.rfind(')');
        if (end_of_name == std::string::npos) continue;
        std::istringstream rest(stat.substr(end_of_name + 1));
        char state = 0;
        pid_t parent = 0;
        if (rest >> state >> parent) result.emplace_back(std::stoi(name), parent);
    }
    return result;
}

int rank_of(pid_t pid) {
    std::ifstream variables(fs::path("/proc") / std::to_string(pid) / "environ");
    std::string variable;
    while (std::getline(variables, variable, '\0')) {
        for (const std::string_view name : {"OMPI_COMM_WORLD_RANK=", "PMI_RANK=", "PMIX_RANK="}) {
            if (variable.starts_with(name)) return std::stoi(variable.substr(name.size()));
        }
    }
    return 0;
}

fs::path from_environment(const std::string& name, const fs::path& otherwise) {
    const auto& variables = start_environment();
    const auto found = variables.find(name);
    return found == variables.end() ? otherwise : fs::path(found->second);
}

std::string launcher() {
    return from_environment("TRIREME_MPIRUN", source_dir() / "tools" / "mpirun").string();
}

}  // namespace

Process::Process(const std::vector<std::string>& argv, const Options& options) : timeout_(options.timeout) {
    if (argv.empty()) throw std::invalid_argument("Process: an empty command line");
    auto arguments = argv;
    auto variables = environment(options);
    const auto argument_pointers = pointers(arguments);
    const auto variable_pointers = pointers(variables);
    const std::string cwd = options.cwd.string();
    const int in = open("/dev/null", O_RDONLY | O_CLOEXEC);
    out_ = memory_file("stdout");
    err_ = memory_file("stderr");
    start_ = now();
    pid_ = fork();
    if (pid_ == 0) {
        become(const_cast<char**>(argument_pointers.data()), const_cast<char**>(variable_pointers.data()),
               cwd.empty() ? nullptr : cwd.c_str(), in, out_, err_);
    }
    close(in);
    if (pid_ < 0) fail("fork");
    setpgid(pid_, pid_);  // both do it, so that it holds whoever comes first
}

Process::Process(Process&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      out_(std::exchange(other.out_, -1)),
      err_(std::exchange(other.err_, -1)),
      start_(other.start_),
      timeout_(other.timeout_),
      done_(std::exchange(other.done_, true)),
      result_(std::move(other.result_)) {}

Process::~Process() {
    if (!done_ && running()) {
        kill_all();
        waitpid(pid_, nullptr, 0);
    }
    if (out_ >= 0) close(out_);
    if (err_ >= 0) close(err_);
}

double Process::age() const {
    return now() - start_;
}

bool Process::running() {
    if (done_) return false;
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) == 0) return true;
    done_ = true;
    result_.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    result_.seconds = age();
    return false;
}

Result Process::wait() {
    while (running()) {
        if (!result_.timed_out && age() > timeout_) {
            result_.timed_out = true;
            kill_all();
        }
        std::this_thread::sleep_for(poll_interval);
    }
    if (out_ >= 0) {
        result_.out = content(out_);
        result_.err = content(err_);
    }
    return result_;
}

void Process::kill(int signal) const {
    if (!done_) ::kill(pid_, signal);
}

// A launcher puts its ranks into groups of their own, so they are looked up before it is gone.
void Process::kill_all() const {
    const auto others = descendants();
    ::kill(-pid_, SIGKILL);
    for (const pid_t other : others) ::kill(other, SIGKILL);
}

std::string Process::out() const {
    return content(out_);
}
std::string Process::err() const {
    return content(err_);
}

bool Process::wait_for_output(std::string_view text, double seconds) {
    const double end = now() + seconds;
    while (true) {
        const bool last_look = !running() || now() > end;
        if (out().find(text) != std::string::npos || err().find(text) != std::string::npos) return true;
        if (last_look) return false;
        std::this_thread::sleep_for(poll_interval);
    }
}

std::vector<pid_t> Process::descendants() const {
    const auto family = children_and_parents();
    std::vector<pid_t> found = {pid_};
    for (size_t i = 0; i < found.size(); ++i) {
        for (const auto& [child, parent] : family) {
            if (parent == found[i]) found.push_back(child);
        }
    }
    found.erase(found.begin());
    return found;
}

std::map<int, pid_t> Process::ranks() const {
    auto candidates = descendants();
    candidates.push_back(pid_);
    std::map<int, pid_t> result;
    for (const pid_t pid : candidates) {
        std::error_code gone;
        const auto program = fs::read_symlink(fs::path("/proc") / std::to_string(pid) / "exe", gone);
        if (!gone && program == fs::canonical(trireme_exe())) result.emplace(rank_of(pid), pid);
    }
    return result;
}

Process start(const std::vector<std::string>& argv, const Options& options) {
    return {argv, options};
}

Result run(const std::vector<std::string>& argv, const Options& options) {
    return Process(argv, options).wait();
}

std::vector<std::string> trireme_command(int ranks, const std::vector<std::string>& args) {
    std::vector<std::string> argv;
    if (ranks > 0) argv = {launcher(), "-n", std::to_string(ranks)};
    argv.push_back(trireme_exe().string());
    argv.insert(argv.end(), args.begin(), args.end());
    return argv;
}

std::vector<std::string> ranks_unlike(const std::vector<std::vector<std::string>>& ranks) {
    std::vector<std::string> argv = {launcher()};
    for (const std::vector<std::string>& rank : ranks) {
        if (argv.size() > 1) argv.emplace_back(":");
        argv.insert(argv.end(), {"-n", "1"});
        argv.insert(argv.end(), rank.begin(), rank.end());
    }
    return argv;
}

Process start_trireme(int ranks, const std::vector<std::string>& args, const Options& options) {
    return {trireme_command(ranks, args), options};
}

Result trireme(int ranks, const std::vector<std::string>& args, const Options& options) {
    return run(trireme_command(ranks, args), options);
}

fs::path trireme_exe() {
    return from_environment("TRIREME_EXE", TRIREME_DEFAULT_EXE);
}
fs::path source_dir() {
    return from_environment("TRIREME_SOURCE_DIR", TRIREME_DEFAULT_SOURCE_DIR);
}
fs::path shared_dir() {
    return from_environment("TRIREME_SHARED_DIR", "");
}

const std::map<std::string, std::string>& start_environment() {
    static const auto variables = [] {
        std::map<std::string, std::string> result;
        for (char** entry = environ; *entry != nullptr; ++entry) {
            const std::string_view variable = *entry;
            const auto equals = variable.find('=');
            const auto name = variable.substr(0, equals);
            const auto is_launchers = [&](std::string_view prefix) { return name.starts_with(prefix); };
            constexpr std::string_view prefixes[] = {"OMPI_COMM_", "OMPI_UNIVERSE", "PMIX_", "PMI_"};
            if (equals == std::string_view::npos || std::ranges::any_of(prefixes, is_launchers)) continue;
            result.emplace(name, variable.substr(equals + 1));
        }
        return result;
    }();
    return variables;
}

TempDir::TempDir() {
    std::string pattern = (fs::temp_directory_path() / "trireme-test-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) fail("mkdtemp " + pattern);
    path_ = pattern;
}

TempDir::~TempDir() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
}

int count_of(std::string_view text, std::string_view part) {
    int count = 0;
    for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + part.size())) ++count;
    return count;
}

std::string read_file(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error("cannot read " + path.string());
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

void write_file(const fs::path& path, std::string_view content) {
    if (path.has_parent_path()) fs::create_directories(path.parent_path());
    std::ofstream file(path, std::ios::binary);
    file.write(content.data(), static_cast<std::streamsize>(content.size()));
    if (!file.flush()) throw std::runtime_error("cannot write " + path.string());
}

}  // namespace trireme::testing
