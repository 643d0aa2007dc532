#include "support/runs.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "support/catch.hpp"
#include "trireme/base/parse.hpp"
#include "trireme/base/philox.hpp"
#include "trireme/io/hdf5.hpp"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;

Event event_from(const std::string& line) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (!json.is_object()) throw std::runtime_error("not one JSON object: " + line);
    Event event;
    for (const auto& [key, value] : json.items()) {
        if (value.is_number()) event.numbers[key] = value.get<double>();
        if (value.is_string()) event.texts[key] = value.get<std::string>();
    }
    event.kind = event.texts.contains("event") ? event.texts["event"] : "";
    return event;
}

void read_tensors(const io::File& file, const std::string& group, const std::string& prefix,
                  Tensors& tensors) {
    for (const std::string& name : file.children(group)) {
        const io::Dataset dataset = file.open(group + "/" + name);
        const std::int64_t count = dataset.info().shape.count();
        std::vector<float> values(static_cast<std::size_t>(count));
        dataset.read_flat({0, count}, DType::f32, values.data());
        tensors[prefix + name] = std::move(values);
    }
}

std::string ini_text(const Keys& keys) {
    std::string text, section;
    for (const auto& [key, value] : keys) {
        const std::string head = key.substr(0, key.find('.'));
        if (head != section) text += "[" + head + "]\n";
        section = head;
        text += key.substr(key.find('.') + 1) + " = " + value + "\n";
    }
    return text;
}

// A number in [0, 1) that depends on its place only.
double noise(std::uint64_t seed, std::int64_t i, std::int64_t k) {
    const RandomStream stream(seed, Purpose::augment, static_cast<std::uint64_t>(i));
    return static_cast<double>(stream.word(static_cast<std::uint64_t>(k))) / 4294967296.0;
}

double to_64th(double value) {
    return std::round(64 * value) / 64;
}

}  // namespace

double Event::operator[](const std::string& key) const {
    const auto found = numbers.find(key);
    if (found == numbers.end()) throw std::runtime_error("the " + kind + " line has no number " + key);
    return found->second;
}

Checkpoint read_checkpoint(const fs::path& path) {
    const io::File file(path.string(), io::Access::read);
    Checkpoint checkpoint;
    read_tensors(file, "/model", "", checkpoint.weights);
    for (const std::string& state : file.children("/optim"))
        read_tensors(file, "/optim/" + state, state + "/", checkpoint.states);
    for (const char* name : {"epoch", "step_in_epoch", "updates", "skipped", "samples", "growth", "has_best",
                             "best_step", "bad_evals"})
        checkpoint.position[name] = static_cast<double>(file.int_attribute("/position", name).value());
    for (const char* name : {"scale", "best"})
        checkpoint.position[name] = file.real_attribute("/position", name).value();
    return checkpoint;
}

bool same_bits(const Tensors& a, const Tensors& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
        return x.first == y.first && x.second.size() == y.second.size() &&
               std::memcmp(x.second.data(), y.second.data(), x.second.size() * sizeof(float)) == 0;
    });
}

double largest_difference(const Tensors& a, const Tensors& b) {
    if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
    double largest = 0;
    for (const auto& [name, values] : a) {
        const auto other = b.find(name);
        if (other == b.end() || other->second.size() != values.size())
            return std::numeric_limits<double>::infinity();
        for (std::size_t i = 0; i < values.size(); ++i) {
            const double apart = std::fabs(static_cast<double>(values[i]) - other->second[i]);
            largest =
                std::isfinite(apart) ? std::max(largest, apart) : std::numeric_limits<double>::infinity();
        }
    }
    return largest;
}

bool all_finite(const Tensors& tensors) {
    return std::all_of(tensors.begin(), tensors.end(), [](const auto& tensor) {
        return std::all_of(tensor.second.begin(), tensor.second.end(),
                           [](float value) { return std::isfinite(value); });
    });
}

Run::Run(const fs::path& dir, Keys keys) : dir_(dir), keys_(std::move(keys)) {
    std::stable_sort(keys_.begin(), keys_.end(), [](const auto& a, const auto& b) {
        return a.first.substr(0, a.first.find('.')) < b.first.substr(0, b.first.find('.'));
    });
}

Run Run::with(const Keys& changes) const {
    Keys keys = keys_;
    std::erase_if(keys, [&](const auto& old) {
        return std::any_of(changes.begin(), changes.end(),
                           [&](const auto& now) { return now.first == old.first; });
    });
    keys.insert(keys.end(), changes.begin(), changes.end());
    return {dir_, keys};
}

Run Run::at(const fs::path& dir) const {
    return {dir, keys_};
}

std::vector<std::string> Run::arguments(const std::vector<std::string>& more) const {
    const std::string ini = dir_.string() + ".ini";
    write_file(ini, "[run]\ndir = " + dir_.string() + "\n" + ini_text(keys_));
    std::vector<std::string> words = {"train", ini};
    words.insert(words.end(), more.begin(), more.end());
    return words;
}

Result Run::train(int ranks, const std::vector<std::string>& more) const {
    return trireme(ranks, arguments(more));
}

Process Run::start(int ranks, const std::vector<std::string>& more) const {
    return start_trireme(ranks, arguments(more));
}

Result Run::expect(int status, int ranks, const std::vector<std::string>& more) const {
    const Result result = train(ranks, more);
    INFO(ranks << " ranks, " << dir_.filename().string() << "\n" << result.out << result.err);
    REQUIRE(result.status == status);
    return result;
}

Checkpoint Run::finish(int ranks) const {
    expect(0, ranks);
    return last();
}

std::vector<Event> Run::events(const std::string& kind) const {
    std::istringstream text(read_file(dir_ / "metrics.jsonl"));
    std::vector<Event> events;
    for (std::string line; std::getline(text, line);) {
        Event event = event_from(line);
        if (kind.empty() || event.kind == kind) events.push_back(std::move(event));
    }
    return events;
}

std::vector<double> Run::column(const std::string& kind, const std::string& key) const {
    std::vector<double> values;
    for (const Event& event : events(kind)) values.push_back(event[key]);
    return values;
}

namespace {

std::vector<std::int64_t> steps_in(const fs::path& folder) {
    std::vector<std::int64_t> steps;
    std::error_code gone;
    for (fs::directory_iterator entry(folder, gone), end; !gone && entry != end; entry.increment(gone)) {
        const std::string name = entry->path().filename().string();
        if (name.starts_with("step-") && name.ends_with(".h5")) steps.push_back(std::stoll(name.substr(5)));
    }
    std::sort(steps.begin(), steps.end());
    return steps;
}

}  // namespace

std::vector<std::int64_t> Run::saved_steps() const {
    std::vector<std::int64_t> steps = steps_in(dir_ / "checkpoints");
    if (steps.empty()) throw std::runtime_error("no step checkpoint in " + dir_.string());
    return steps;
}

std::int64_t Run::newest_step() const {
    const std::vector<std::int64_t> steps = steps_in(dir_ / "checkpoints");
    return steps.empty() ? 0 : steps.back();
}

fs::path Run::checkpoint_path(std::int64_t step) const {
    std::string digits = std::to_string(step);
    digits.insert(0, 8 - digits.size(), '0');
    return dir_ / "checkpoints" / ("step-" + digits + ".h5");
}

std::vector<TracedSample> Run::trace() const {
    std::vector<TracedSample> trace;
    for (const auto& entry : fs::directory_iterator(dir_)) {
        const std::string name = entry.path().filename().string();
        if (!name.starts_with("samples-") || entry.path().extension() != ".csv") continue;
        std::istringstream text(read_file(entry.path()));
        std::string line;
        if (!std::getline(text, line) || line != "step,lane,sample")
            throw std::runtime_error(name + " does not begin with step,lane,sample");
        while (std::getline(text, line)) {
            const std::vector<std::string> parts = split(line, ',');
            if (parts.size() != 3) throw std::runtime_error(name + ": not three numbers: " + line);
            trace.push_back({std::stoll(parts[0]), std::stoll(parts[1]), std::stoll(parts[2])});
        }
    }
    std::stable_sort(trace.begin(), trace.end(), [](const TracedSample& a, const TracedSample& b) {
        return std::pair(a.step, a.lane) < std::pair(b.step, b.lane);
    });
    return trace;
}

bool Run::wait_for_step(Process& process, std::int64_t step) const {
    const std::string wanted = "\"step\":" + std::to_string(step) + ",\"epoch\"";
    while (true) {
        const bool over = !process.running();
        if (fs::exists(dir_ / "metrics.jsonl") &&
            read_file(dir_ / "metrics.jsonl").find(wanted) != std::string::npos)
            return !over;
        if (over) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

Event evaluate(int ranks, const fs::path& checkpoint, const std::string& data,
               const std::vector<std::string>& more) {
    std::vector<std::string> words = {"eval", checkpoint.string(), "--data=" + data, "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const Result result = trireme(ranks, words);
    INFO(ranks << " ranks\n" << result.out << result.err);
    REQUIRE(result.status == 0);
    return event_from(result.out);
}

std::vector<int> statuses_of_ranks(int ranks, const std::vector<std::string>& args, Result* result) {
    const TempDir folder;
    std::vector<std::string> command = trireme_command(ranks, args);
    // Before the program: a shell that notes the status and ends well, so that the launcher ends no other
    // rank for it.
    const std::vector<std::string> shell = {"/bin/sh", "-c", "\"$@\"; echo $? > \"$0/$$\"",
                                            folder.path().string()};
    command.insert(std::find(command.begin(), command.end(), trireme_exe().string()), shell.begin(),
                   shell.end());
    const Result ended = run(command);
    if (result != nullptr) *result = ended;
    std::vector<int> statuses;
    for (const auto& entry : fs::directory_iterator(folder.path()))
        statuses.push_back(std::stoi(read_file(entry.path())));
    statuses.resize(static_cast<std::size_t>(ranks), -1);
    return statuses;
}

Samples clusters(std::int64_t rows, const Shape& sample, std::int64_t classes, std::uint64_t seed) {
    Samples samples{sample, {}, {}};
    for (std::int64_t i = 0; i < rows; ++i) {
        const std::int64_t label = i % classes;
        for (std::int64_t k = 0; k < sample.count(); ++k)
            samples.x.push_back(to_64th(2 * noise(99, label, k) - 1 + noise(seed, 1000 + i, k) - 0.5));
        samples.y.push_back(static_cast<double>(label));
    }
    return samples;
}

Samples linear_targets(std::int64_t rows, std::int64_t features, std::int64_t targets) {
    Samples samples{Shape{features}, {}, {}, targets > 1 ? targets : 0};
    for (std::int64_t i = 0; i < rows; ++i) {
        std::vector<double> sums(static_cast<std::size_t>(targets), 0.25);
        for (std::int64_t k = 0; k < features; ++k) {
            const double x = to_64th(2 * noise(5, i, k) - 1);
            samples.x.push_back(x);
            for (std::size_t t = 0; t < sums.size(); ++t)
                sums[t] += x * (static_cast<double>(k) - 1.5 * static_cast<double>(t) + 0.5);
        }
        samples.y.insert(samples.y.end(), sums.begin(), sums.end());
    }
    return samples;
}

Keys single_weight(const fs::path& file, double lr) {
    write_samples(file, {Shape{1}, {1, 1, 1, 1}, {1, 1, 1, 1}}, {}, {DType::f32});
    return {{"data.train", file.string()}, {"model.layer", "linear out=1 bias=false"},
            {"model.loss", "mse"},         {"model.init", "zeros"},
            {"train.batch", "4"},          {"optim.name", "sgd"},
            {"optim.lr", to_text(lr)},     {"train.max_steps", "20"},
            {"checkpoint.every", "never"}};
}

}  // namespace trireme::testing
