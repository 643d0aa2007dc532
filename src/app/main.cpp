// The way in and the only way out: reads the command line, joins MPI, builds what commands run on, and turns
// errors into one message and an exit status.
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <optional>

#include "app/commands.hpp"
#include "app/help.hpp"
#include "app/signals.hpp"
#include "app/text.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/float_mode.hpp"

namespace trireme::app {
namespace {

/// In one write, so that messages of several ranks do not mix.
void complain(const std::string& message) {
    const std::string line = "trireme: error: " + message + "\n";
    std::fwrite(line.data(), 1, line.size(), stderr);
    std::fflush(stderr);
}

/// An error that only this rank knows of: the others may wait for it for ever, so the job ends here.
int alone_with(Session& session, Status status, const std::string& message) {
    const std::string who = session.size() > 1 ? "rank " + std::to_string(session.rank()) + ": " : "";
    complain(who + message);
    if (session.size() > 1) session.abort(static_cast<int>(status));
    return static_cast<int>(status);
}

/// Runs `action`; what it throws becomes one message and a status. Everything that other ranks may wait for
/// has to be built outside of it.
int guarded(Session& session, const std::function<int()>& action) {
    try {
        return action();
    } catch (const Error& error) {
        if (error.scope() == Scope::one_rank) return alone_with(session, error.status(), error.what());
        if (session.rank() == 0) complain(error.what());
        return static_cast<int>(error.status());
    } catch (const std::bad_alloc&) {
        return alone_with(session, Status::failed, "out of memory");
    } catch (const std::exception& error) {
        return alone_with(session, Status::failed, error.what());
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

int run_command(Session& session, const Command& command, const CommandLine& line) {
    if (command.across_ranks) check_launch(session);
    const std::string ini = command.reads_ini && !line.arguments.empty() ? line.arguments.front() : "";
    const Config config = resolve_config(session.world(), ini, line.settings);

    const Log log(session.rank(), log_level_from(config.run.log));
    const std::unique_ptr<Device> device = make_device(config.run.device);
    Mesh mesh(session.world(), static_cast<int>(config.parallel.tensor),
              static_cast<int>(config.parallel.pipeline));
    if (!config.parallel.allow_spread) mesh.require_tensor_on_one_node(session.local());
    Runtime runtime{.session = session,
                    .mesh = mesh,
                    .device = *device,
                    .log = log,
                    .threads = config.run.threads > 0 ? config.run.threads : session.core_share(),
                    .stop_requested = stop_signal_seen};
    return guarded(session, [&] { return command.run(runtime, line, config); });
}

int start(int argc, char** argv) {
    ignore_broken_pipes();
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
    return guarded(session, [&] {
        if (wrong) throw Error(*wrong);
        return run_command(session, *command, line);
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
