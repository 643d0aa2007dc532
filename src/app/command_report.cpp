#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "app/report_page.hpp"
#include "app/saved_model.hpp"
#include "app/text.hpp"
#include "train/run_directory.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"
#include "trireme/comm/agree.hpp"

namespace trireme::app {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view beginning = "<!DOCTYPE html>";  // of the pages

/// An empty file holds nothing.
bool holds_page(const std::string& path) {
    std::string text(beginning.size(), '\0');
    std::ifstream file(path, std::ios::binary);
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    return file.gcount() == 0 || text == beginning;
}

/// The page may replace an older one, and nothing else.
void check_output(const std::string& output, const std::vector<std::string>& dirs) {
    const auto refuse = [&](const std::string& why) { throw usage_error("--output=" + output + ": " + why); };
    if (output.empty()) refuse("expected the name of a file to write");
    if (!fs::exists(output)) return;
    if (!fs::is_regular_file(output)) refuse("expected the name of a file to write");
    for (const std::string& dir : dirs)
        for (const char* name : {"metrics.jsonl", "config.ini"})
            if (const fs::path own = fs::path(dir) / name; fs::exists(own) && fs::equivalent(output, own))
                refuse("this is a file of a run");
    if (!holds_page(output)) refuse("there is such a file, and it is no page of this kind");
}

int run(Runtime& runtime, const CommandLine& line, const Config&) {
    Communicator& world = runtime.session.world();
    const std::string output = line.option("output", "report.html");
    std::vector<std::string> dirs;
    for (const std::string& argument : line.arguments) {
        const std::string dir = run_directory(world, argument);
        dirs.push_back(dir.empty() ? argument : dir);  // which then says itself that it is none
    }
    std::string page;
    agreed_by_one(world, [&] {
        check_output(output, dirs);
        std::vector<RunRecord> runs;
        for (const std::string& dir : dirs) runs.push_back(read_run(dir));
        name_runs(runs);
        page = report_html(runs);
        if (const fs::path folder = fs::path(output).parent_path(); !folder.empty())
            fs::create_directories(folder);
        write_whole(output, page);
    });
    if (world.rank() == 0)
        print(count_text(static_cast<std::int64_t>(dirs.size()), "run") + " in " + output + ", " +
              bytes_text(static_cast<double>(page.size())) + "\n");
    return 0;
}

}  // namespace

Command report_command() {
    return {
        .name = "report",
        .arguments = "RUN_DIR|RUN.ini ... [--output=report.html]",
        .summary = "curves and figures of runs as one page for a browser",
        .help =
            "Reads metrics.jsonl and config.ini of each run and writes one HTML file that needs nothing "
            "else: best "
            "values, loss, accuracy, learning rate, gradient norm and throughput over steps, where the time "
            "goes, and "
            "in which keys the configurations differ. Runs may still be going on.",
        .options = {{"output", "FILE.html", "The file to write. Default: report.html."}},
        .least_arguments = 1,
        .most_arguments = 1000000,
        .across_ranks = false,
        .own_mesh = false,
        .run = run,
    };
}

}  // namespace trireme::app
