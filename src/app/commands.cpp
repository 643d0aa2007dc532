#include "app/commands.hpp"

namespace trireme::app {

const std::vector<Command>& commands() {
    static const std::vector<Command> table = {import_command(),  train_command(),    eval_command(),
                                               predict_command(), generate_command(), export_command(),
                                               report_command(),  info_command(),     plan_command(),
                                               doctor_command(),  bench_command(),    sweep_command()};
    return table;
}

const Command* find_command(const std::string& name) {
    for (const Command& command : commands())
        if (command.name == name) return &command;
    return nullptr;
}

}  // namespace trireme::app
