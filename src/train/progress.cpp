#include "train/progress.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "trireme/base/parse.hpp"

namespace trireme {
namespace {

std::string fixed(double value, int digits) {
    char text[48];
    std::snprintf(text, sizeof text, "%.*f", digits, value);
    std::string result = text;
    std::replace(result.begin(), result.end(), ',', '.');  // whatever the locale says
    return result;
}

std::string rate_text(double per_second) {
    if (per_second >= 1e6) return fixed(per_second / 1e6, 2) + "M";
    if (per_second >= 1e4) return fixed(per_second / 1e3, 1) + "k";
    return fixed(per_second, 0);
}

std::string bar(double fraction) {
    constexpr int width = 20;
    const int full = std::clamp(static_cast<int>(fraction * width + 0.5), 0, width);
    std::string text;
    for (int i = 0; i < width; ++i) text += i < full ? "█" : "░";
    return text;
}

/// Open MPI gives every rank a terminal for stdout, wherever its own output goes: there the launcher's own
/// stdout tells. tools/mpirun says so outright in TRIREME_TERMINAL.
bool person_watches() {
    if (const char* told = std::getenv("TRIREME_TERMINAL")) return std::string(told) == "1";
    if (std::getenv("OMPI_COMM_WORLD_SIZE") == nullptr) return isatty(STDOUT_FILENO) != 0;
    char target[64] = "";
    const std::string link = "/proc/" + std::to_string(getppid()) + "/fd/1";
    if (readlink(link.c_str(), target, sizeof target - 1) < 0) return false;
    const std::string name = target;
    return name.starts_with("/dev/pts/") || name.starts_with("/dev/tty");
}

}  // namespace

Progress::Progress(int rank, const std::string& mode, bool quiet, std::int64_t epochs,
                   std::int64_t total_steps)
    : shown_(rank == 0 && mode != "off" && !quiet),
      live_(shown_ && (mode == "on" || person_watches())),
      epochs_(epochs),
      total_steps_(total_steps) {}

double Progress::samples_per_second() const {
    return static_cast<double>(samples_) / std::max(1e-9, watch_.seconds());
}

std::string Progress::training_text(std::int64_t epoch) const {
    std::string text = "epoch " + std::to_string(epoch) + (epochs_ > 0 ? "/" + std::to_string(epochs_) : "");
    if (count_ > 0) text += "  loss " + fixed(loss_ / count_, 4);
    if (count_ > 0 && accuracy_) text += "  accuracy " + fixed(100 * correct_ / count_, 1) + " %";
    return samples_ > 0 ? text + "  " + rate_text(samples_per_second()) + " samples/s" : text;
}

void Progress::step(std::int64_t epoch, std::int64_t step, double loss_sum, double count, double correct,
                    bool accuracy, std::int64_t samples) {
    if (!shown_) return;
    if (first_step_ < 0) {
        // Planning and first touches are in the first step: the rate is that of the others.
        first_step_ = step;
        watch_.restart();
        samples_ -= samples;
    }
    loss_ += loss_sum;
    count_ += count;
    correct_ += correct;
    accuracy_ = accuracy;
    samples_ += samples;
    last_step_ = step;
    if (!live_ || watch_.seconds() - drawn_at_ < 0.1) return;
    drawn_at_ = watch_.seconds();
    const double done =
        static_cast<double>(step) / static_cast<double>(std::max<std::int64_t>(1, total_steps_));
    const double left = drawn_at_ * static_cast<double>(total_steps_ - step) /
                        static_cast<double>(std::max<std::int64_t>(1, step - first_step_));
    std::printf("\r\033[K%s %s  %s left", bar(done).c_str(), training_text(epoch).c_str(),
                duration_text(left).c_str());
    std::fflush(stdout);
    drawn_ = true;
}

void Progress::clear_line() {
    if (drawn_) std::printf("\r\033[K");
    drawn_ = false;
}

void Progress::epoch_end(std::int64_t epoch, const EvalResult* valid, bool best) {
    if (!shown_) return;
    clear_line();
    std::string line = training_text(epoch);
    if (valid != nullptr) {
        line += "  | valid loss " + fixed(valid->loss, 4);
        line += valid->has_accuracy ? "  accuracy " + fixed(100 * valid->accuracy, 2) + " %"
                                    : "  mean error " + fixed(valid->error, 4);
        if (best) line += "  *";
    }
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
    loss_ = count_ = correct_ = 0;
}

}  // namespace trireme
