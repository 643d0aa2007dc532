#include "support/meshes.hpp"

#include "support/catch.hpp"

namespace trireme::testing {
namespace {

// A text in which much can be learned, and not everything.
std::string some_text(std::int64_t words) {
    const char* all[] = {"oars ",     "pull ",        "in time; ", "the ship ",
                         "goes on, ", "three banks ", "of them.\n"};
    std::string text;
    for (std::int64_t i = 0; i < words; ++i) text += all[(i * i + i / 3) % 7];
    return text;
}

}  // namespace

Run tiny_gpt(const TempDir& folder) {
    write_file(folder / "text.txt", some_text(400));
    const Result imported = trireme::testing::trireme(
        0, {"import", folder / "text.txt", "--output=" + (folder / "data").string(), "--split=0.8,0.2"});
    INFO(imported.err);
    REQUIRE(imported.status == 0);
    return Run(folder / "gpt", {{"data.train", folder / "data/train-*.h5"},
                                {"data.valid", folder / "data/valid-*.h5"},
                                {"model.arch", "gpt"},
                                {"model.layers", "2"},
                                {"model.d_model", "24"},
                                {"model.heads", "6"},
                                {"model.kv_heads", "3"},
                                {"model.context", "13"},
                                {"model.dropout", "0.1"},
                                {"train.batch", "8"},
                                {"train.lanes", "2"},
                                {"train.max_steps", "10"},
                                {"train.clip_norm", "1"},
                                {"optim.lr", "0.01"},
                                {"optim.weight_decay", "0.1"},
                                {"run.threads", "1"}});
}

Run tiny_images(const TempDir& folder, const Keys& model) {
    write_samples(folder / "train.h5", clusters(64, Shape{2, 8, 8}, 5));
    write_samples(folder / "valid.h5", clusters(30, Shape{2, 8, 8}, 5, 2));
    return Run(folder / "images", {{"data.train", folder / "train.h5"},
                                   {"data.valid", folder / "valid.h5"},
                                   {"train.batch", "16"},
                                   {"train.lanes", "2"},
                                   {"train.max_steps", "10"},
                                   {"optim.name", "sgd"},
                                   {"optim.lr", "0.05"},
                                   {"optim.momentum", "0.9"},
                                   {"run.threads", "1"}})
        .with(model);
}

Keys keys_of(const Grid& grid) {
    Keys keys = {{"parallel.tensor", std::to_string(grid.tensor)},
                 {"parallel.pipeline", std::to_string(grid.pipeline)}};
    keys.insert(keys.end(), grid.keys.begin(), grid.keys.end());
    return keys;
}

Run require_goes_on(const Run& run, const std::vector<Leg>& legs) {
    run.expect(0, 0);
    const Run cut = run.at(run.dir().parent_path() / "cut");
    for (const Leg& leg : legs)
        cut.with({{"train.max_steps", leg.until}}).with(keys_of(leg.grid)).expect(0, leg.grid.ranks);
    REQUIRE(cut.column("step", "step").size() == 10);
    REQUIRE(largest_difference(cut.last().weights, run.last().weights) < 2e-3);
    REQUIRE(cut.column("step", "loss")[9] == Approx(run.column("step", "loss")[9]).epsilon(1e-3));
    return cut;
}

void require_like_one_rank(const Run& run, const std::vector<Grid>& grids, double tolerance) {
    run.with({{"run.trace_samples", "true"}}).expect(0, 0);
    const Checkpoint one = run.last();
    for (const Grid& grid : grids) {
        std::string name = std::to_string(grid.ranks) + "x" + std::to_string(grid.pipeline) + "x" +
                           std::to_string(grid.tensor);
        for (const auto& [key, value] : grid.keys) name += "-" + value;
        INFO(name);
        const Run here = run.at(run.dir().parent_path() / (run.dir().filename().string() + name))
                             .with({{"run.trace_samples", "true"}})
                             .with(keys_of(grid));
        here.expect(0, grid.ranks);
        REQUIRE(here.column("step", "loss")[0] == Approx(run.column("step", "loss")[0]).epsilon(1e-6));
        for (std::size_t k = 0; k < 10; ++k)
            REQUIRE(here.column("step", "grad_norm")[k] ==
                    Approx(run.column("step", "grad_norm")[k]).epsilon(1e-3));
        REQUIRE(largest_difference(here.last().weights, one.weights) < tolerance);
        REQUIRE(here.trace() == run.trace());  // each sample once, though a whole group has taken it
        REQUIRE(here.column("valid", "count") == run.column("valid", "count"));
        REQUIRE(here.column("valid", "accuracy").back() ==
                Approx(run.column("valid", "accuracy").back()).margin(0.011));
    }
}

}  // namespace trireme::testing
