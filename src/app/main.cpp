// The way in and the only way out: reads the command line, joins MPI, builds what commands run on, and turns
// errors into one message and an exit status. With run.devices the process is as many ranks, a thread each.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <thread>
#include <vector>

#include "app/commands.hpp"
#include "app/help.hpp"
#include "app/run_device.hpp"
#include "app/signals.hpp"
#include "app/text.hpp"
#include "train/deadline.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/float_mode.hpp"
#include "trireme/base/recorder.hpp"
#include "trireme/comm/watchdog.hpp"

namespace trireme::app {
namespace {

/// In one write, so that messages of several ranks do not mix.
void complain(const std::string& message) {
    const std::string line = "trireme: error: " + message + "\n";
    std::fwrite(line.data(), 1, line.size(), stderr);
    std::fflush(stderr);
}

/// The right to the last word of this process: whoever takes it speaks and ends the job, so that no other
/// thread has a second message or another status.
using LastWord = std::mutex;

/// An error that only this rank knows of: the others may wait for it for ever, so the job ends here.
int alone_with(Session& session, LastWord& last_word, Status status, const std::string& message) {
    if (session.size() > 1) {
        last_word.lock();
        const Recorder* recorder = Recorder::here();
        const std::string place = recorder != nullptr ? recorder->place_of_failure() : "";
        complain("rank " + std::to_string(session.rank()) + (place.empty() ? "" : " (" + place + ")") + ": " +
                 message);
        session.abort(static_cast<int>(status));
    }
    complain(message);
    return static_cast<int>(status);
}

/// Runs `action`; what it throws becomes one message and a status. Everything that other ranks may wait for
/// has to be built outside of it.
int guarded(Session& session, LastWord& last_word, const std::function<int()>& action) {
    try {
        return action();
    } catch (const Error& error) {
        if (error.scope() == Scope::one_rank)
            return alone_with(session, last_word, error.status(), error.what());
        if (session.rank() == 0) complain(error.what());
        return static_cast<int>(error.status());
    } catch (const std::bad_alloc&) {
        return alone_with(session, last_word, Status::failed, "out of memory");
    } catch (const std::exception& error) {
        return alone_with(session, last_word, Status::failed, error.what());
    }
}

/// What needs no MPI: help and version. Nothing where a command is to be run.
std::optional<int> answered(const CommandLine& line) {
    if (line.version)
        print(version_text());
    else if (line.markdown)
        print(configuration_markdown());
    else if (line.help && !line.command.empty())
        print(command_help_text(*find_command(line.command)));
    else if (line.help || line.command.empty())
        print(overview_text());
    else
        return std::nullopt;
    return line.help || line.version || line.markdown ? 0 : static_cast<int>(Status::bad_usage);
}

/// What the ranks of this process run.
struct Job {
    const Command& command;
    const CommandLine& line;
    const Config& config;
    LastWord& last_word;
    std::deque<Recorder>& recorders;  ///< of each rank of the process
};

/// Of the ranks of this process.
Watchdog::Options watching(Session& session, LastWord& last_word, const Config& config,
                           std::deque<Recorder>& recorders) {
    return {.timeout = stall_timeout_from(config.run.stall_timeout),
            .idle_seconds =
                [&recorders] {
                    double idle = recorders.front().idle_seconds();
                    for (const Recorder& recorder : recorders) idle = std::min(idle, recorder.idle_seconds());
                    return idle;
                },
            .place =
                [&session, &recorders] {
                    if (recorders.size() == 1) return recorders.front().place();
                    std::string text;
                    for (std::size_t device = 0; device < recorders.size(); ++device)
                        text += (device > 0 ? "; " : "") + std::string("device ") + std::to_string(device) +
                                ": " + recorders[device].place();
                    return text;
                },
            .end =
                [&session, &last_word](const std::string& found) {
                    last_word.lock();
                    complain(found);
                    session.abort(static_cast<int>(Status::failed));
                }};
}

void warn_of_crowding(const Session& session, const Device& device, const Log& log) {
    constexpr int usual_most = 64;
    const int devices = session.devices();
    const std::string these = "run.devices=" + std::to_string(devices);
    const char* binding = std::getenv("OMP_PROC_BIND");
    if (device.host_memory() && binding != nullptr && *binding != '\0' && std::string(binding) != "false")
        log.warning("OMP_PROC_BIND=" + std::string(binding) + " binds the threads of all devices of " +
                    these + " to the same cores; unset it");
    if (device.host_memory() && devices > session.allowed_cores())
        log.warning(these + " is more than the cores that the process may use, " +
                    std::to_string(session.allowed_cores()) + ": they take turns");
    else if (devices > usual_most)
        log.warning(these + " is more than " + std::to_string(usual_most) +
                    " in one process; more processes with fewer devices each may be faster");
}

/// While it lives, somebody is told of this rank's spans.
class Told {
public:
    Told(Recorder& recorder, SpanListener* listener) : recorder_(recorder) { recorder_.tell(listener); }
    ~Told() { recorder_.tell(nullptr); }
    Told(const Told&) = delete;
    Told& operator=(const Told&) = delete;

private:
    Recorder& recorder_;
};

int run_rank(Session& session, const Job& job) {
    const Config& config = job.config;
    const Recorder::Member member(&job.recorders[static_cast<std::size_t>(session.device())], Recorder::main);
    const Log log(session.rank(), log_level_from(config.run.log));
    const bool own_mesh = job.command.own_mesh;
    const RunDevice place =
        own_mesh ? make_run_device(session, config, log) : RunDevice{make_device("cpu"), nullptr};
    const Device& device = *place.device;
    const Told told(*Recorder::here(), place.device->listener());
    if (session.devices() > 1) warn_of_crowding(session, device, log);
    Mesh mesh(place.world(session), own_mesh ? static_cast<int>(config.parallel.tensor) : 1,
              own_mesh ? static_cast<int>(config.parallel.pipeline) : 1);
    if (own_mesh && !config.parallel.allow_spread) mesh.require_tensor_on_one_node(session.local());
    Runtime runtime{.session = session,
                    .mesh = mesh,
                    .device = *place.device,
                    .log = log,
                    .threads = !device.host_memory()    ? 1
                               : config.run.threads > 0 ? config.run.threads
                                                        : session.core_share(),
                    .stop_requested = stop_signal_seen};
    return guarded(session, job.last_word, [&] { return job.command.run(runtime, job.line, config); });
}

/// Each device is a rank with a thread of its own; the first is this thread. The status is the first that is
/// not 0.
int run_devices(Session& process, const Job& job) {
    const auto devices = static_cast<int>(job.config.run.devices);
    const std::vector<std::unique_ptr<Session>> sessions = process.per_device(devices);
    std::vector<int> statuses(sessions.size());
    const auto be_rank = [&](std::size_t device) {
        Session& session = *sessions[device];
        statuses[device] = guarded(session, job.last_word, [&] { return run_rank(session, job); });
    };
    std::vector<std::thread> others;
    // A thread that cannot be had ends the job: those that run already wait for it.
    guarded(*sessions.front(), job.last_word, [&] {
        for (std::size_t device = 1; device < sessions.size(); ++device) others.emplace_back(be_rank, device);
        return 0;
    });
    be_rank(0);
    for (std::thread& thread : others) thread.join();
    const auto failed =
        std::find_if(statuses.begin(), statuses.end(), [](int status) { return status != 0; });
    return failed != statuses.end() ? *failed : 0;
}

int run_command(Session& session, const Command& command, const CommandLine& line, LastWord& last_word) {
    if (command.across_ranks) check_launch(session);
    const std::string ini = command.reads_ini && !line.arguments.empty() ? line.arguments.front() : "";
    const Config config = resolve_config(session.world(), ini, line.settings);
    constexpr std::int64_t most_devices = 4096;
    if (config.run.devices > most_devices)
        throw usage_error("run.devices=" + std::to_string(config.run.devices) + ": expected at most " +
                          std::to_string(most_devices));
    std::deque<Recorder> recorders(static_cast<std::size_t>(config.run.devices));
    const Job job{command, line, config, last_word, recorders};
    const Watchdog watchdog(session, watching(session, last_word, config, recorders));
    return command.own_mesh && config.run.devices > 1 ? run_devices(session, job) : run_rank(session, job);
}

int start(int argc, char** argv) {
    let_writes_fail();
    flush_denormals_to_zero();  // before any other thread starts
    CommandLine line;
    std::optional<Error> wrong;  // said once MPI tells which rank is to speak
    try {
        line = parse_command_line({argv + 1, argv + argc});
        if (const std::optional<int> status = answered(line)) return *status;
    } catch (const Error& error) {
        wrong = error;
    }
    const Command* command = wrong ? nullptr : find_command(line.command);
    if (command != nullptr && command->heeds_signals) note_stop_signals();

    Session session(argc, argv);
    LastWord last_word;
    return guarded(session, last_word, [&] {
        if (wrong) throw Error(*wrong);
        return run_command(session, *command, line, last_word);
    });
}

}  // namespace
}  // namespace trireme::app

int main(int argc, char** argv) {
    try {
        return trireme::app::start(argc, argv);
    } catch (const std::exception& error) {  // before MPI, or from it
        trireme::app::complain(error.what());
        return static_cast<int>(trireme::Status::failed);
    }
}
