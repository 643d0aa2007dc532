// Weights in: runs that start from a file of them, evaluations of one, and what is refused by name.
#include "support/exports.hpp"

using namespace trireme;
using namespace trireme::testing;
namespace fs = std::filesystem;

namespace {

// Nothing moves at this rate: the weights at the end are those at the start.
Keys without_learning(const fs::path& weights) {
    return {{"run.init_from", weights.string()},
            {"optim.name", "sgd"},
            {"optim.lr", "0"},
            {"optim.momentum", "0"},
            {"optim.weight_decay", "0"},
            {"train.max_steps", "1"},
            {"run.resume", "none"}};
}

}  // namespace

TEST_CASE("eval and predict of a safetensors file are those of its checkpoint", "[cli-init_from]") {
    const TempDir folder;
    const Run run = image_run(folder);
    run.expect(0);
    const std::string weights = folder / "w.safetensors", ini = run.dir().string() + ".ini",
                      data = folder / "valid.h5";
    export_to(run.best_path(), weights);
    const Event expected = evaluate(0, run.best_path(), data);
    CHECK(evaluate(0, weights, data, {ini, "--run.devices=2"})["accuracy"] == expected["accuracy"]);
    for (const int ranks : {0, 2, 3})
        for (const std::string& beside : {ini, run.dir().string()}) {
            const Event found = evaluate(ranks, weights, data, {beside});
            if (ranks == 0) CHECK(found["loss"] == expected["loss"]);  // the same bits
            CHECK(found["loss"] == Approx(expected["loss"]).epsilon(1e-6));
            CHECK(found["accuracy"] == expected["accuracy"]);
            CHECK(found["count"] == 30);
        }
    run_program(
        0, {"predict", run.best_path().string(), "--data=" + data, "--output=" + (folder / "a.h5").string()});
    run_program(2, {"predict", weights, ini, "--data=" + data, "--output=" + (folder / "b.h5").string()});
    const std::vector<double> a = read_values(folder / "a.h5", "/output"),
                              b = read_values(folder / "b.h5", "/output");
    REQUIRE(a.size() == b.size());
    for (std::size_t i = 0; i < a.size(); ++i) REQUIRE(b[i] == Approx(a[i]).margin(1e-6));

    // A file from elsewhere does not tell how inputs were normalised: the training set does.
    RawTensors bare = read_raw(weights);
    bare["1.num_batches_tracked"] = {"I64", {}, std::string(8, '\1')};  // as PyTorch saves it
    write_file(folder / "bare.safetensors", raw_file(bare));
    CHECK(evaluate(0, folder / "bare.safetensors", data, {ini})["loss"] == expected["loss"]);
    const Result no_statistics =
        run_program(0, {"eval", folder / "bare.safetensors", ini, "--data=" + data, "--data.train="}, 2);
    CHECK_THAT(no_statistics.err, contains("data.normalize=standard: "));
    CHECK_THAT(no_statistics.err, contains("there is no data.train"));

    CHECK_THAT(run_program(0, {"eval", weights, "--data=" + data}, 2).err,
               contains("name their model's configuration as well, `trireme eval FILE.safetensors RUN.ini`"));
    CHECK_THAT(run_program(0, {"eval", run.best_path().string(), ini}, 2).err,
               contains("unexpected argument " + ini));
}

TEST_CASE("a run starts from weights on any mesh, to the bit", "[cli-init_from]") {
    const TempDir folder;
    const Run run = tiny_gpt(folder);
    run.expect(0, 2);
    const fs::path source = run.checkpoint_path(10);
    const Checkpoint saved = read_checkpoint(source);
    export_to(source, folder / "w.safetensors");
    REQUIRE(read_raw(folder / "w.safetensors").contains("block1.attention.q_proj.weight"));
    const Grid grids[] = {{1},
                          {3},
                          {2, 1, 2},
                          {4, 2, 2},
                          {3, 3},
                          {2, 2, 1, {{"parallel.sequence", "true"}}},
                          {3, 1, 1, {{"parallel.zero", "3"}}},
                          {4, 2, 1, {{"parallel.zero", "3"}}},
                          {1, 2, 1, {{"run.devices", "2"}}}};
    for (const Grid& grid : grids)
        for (const fs::path& from : {folder / "w.safetensors", source}) {
            if (from == source && grid.ranks != 2) continue;
            std::string name = std::to_string(grid.ranks) + "x" + std::to_string(grid.pipeline) + "x" +
                               std::to_string(grid.tensor);
            for (const auto& [key, value] : grid.keys) name += "-" + value;
            INFO(name << " from " << from);
            const Run fresh = run.at(folder / (name + from.extension().string()))
                                  .with(without_learning(from))
                                  .with({{"train.ema", "0.5"}})
                                  .with(keys_of(grid));
            const Result result = fresh.expect(0, grid.ranks);
            CHECK_THAT(result.err, contains("a new run from the weights of " + from.string()));
            CHECK(same_bits(fresh.last().weights, saved.weights));
            CHECK(fresh.last().position.at("updates") == 1);
            CHECK(fresh.last().position.at("samples") == 8);
            CHECK(fresh.events("start")[0]["step"] == 0);
        }
}

TEST_CASE("what a run from weights does next does not depend on the form they came in", "[cli-init_from]") {
    const TempDir folder;
    const Run run = image_run(folder);
    run.expect(0);
    const fs::path source = run.best_path();
    export_to(source, folder / "w.safetensors");
    const auto from = [&](const std::string& name, const fs::path& weights, const Keys& keys) {
        return run.at(folder / name).with({{"run.init_from", weights.string()}}).with(keys);
    };
    const Run whole = from("whole", source, {{"train.max_steps", "6"}});
    whole.expect(0);
    CHECK(whole.column("step", "loss").front() < run.column("step", "loss").front());

    // Stopped in between; the second start goes on by itself and no longer needs the file.
    const Run first = from("parts", folder / "w.safetensors", {{"train.max_steps", "3"}});
    first.expect(0);
    fs::remove(folder / "w.safetensors");
    const Run second = first.with({{"train.max_steps", "6"}});
    CHECK_THAT(second.expect(0).err, contains("is not read again: the run goes on"));
    CHECK(same_bits(second.last().weights, whole.last().weights));
    CHECK(same_bits(second.last().states, whole.last().states));

    // Data with fewer classes fit, the statistics of the inputs stay those that the weights have learned
    // with.
    write_samples(folder / "few.h5", clusters(20, Shape{2, 8, 8}, 3));
    const Run few = from("few", source, {{"data.train", folder / "few.h5"}, {"train.max_steps", "1"}});
    few.expect(0);
    CHECK(read_values(few.checkpoint_path(1), "/data/shift") == read_values(source, "/data/shift"));
    CHECK_THAT(from("none", source, {{"data.normalize", "none"}, {"train.max_steps", "1"}}).expect(0).err,
               contains("data.normalize=none, but the weights of " + source.string() +
                        " have learned with standard"));
}

TEST_CASE("weights that are damaged or do not fit are refused, and the run directory stays as it was",
          "[cli-init_from]") {
    const TempDir folder;
    const Run run = image_run(folder);
    run.expect(0);
    export_to(run.best_path(), folder / "w.safetensors");
    const std::string content = read_file(folder / "w.safetensors"), bad = folder / "bad.safetensors";
    const std::string metrics = read_file(run.dir() / "metrics.jsonl");
    const RawTensors good = read_raw(folder / "w.safetensors");
    const auto changed = [&](const std::string& name, const RawTensor& tensor) {
        RawTensors tensors = good;
        tensors[name] = tensor;
        return raw_file(tensors);
    };
    RawTensors headless = good, without = good;
    headless.erase("head.weight");
    without.erase("6.bias");
    const std::pair<std::string, std::string> cases[] = {
        {content.substr(0, content.size() - 1), "cut off"},
        {content.substr(0, 100), "cut off: the header ends at byte"},
        {content + "x", "after its header"},
        {raw_file(headless), "does not fit the model: head.weight is missing in the file"},
        {changed("head.weight", {"F32", {0, 6}, ""}), "head.weight is 0x6 in the file, expected a matrix"},
        {raw_file(without), "6.bias (6) is missing in the file"},
        {changed("extra", {"F32", {1}, "1234"}), "extra (1) of the file is not in the model"},
        {changed("6.weight", {"F32", {64, 6}, good.at("6.weight").bytes}),
         "6.weight is 64x6 in the file, 6x64 in the model"},
        {changed("0.bias", {"I32", {4}, good.at("0.bias").bytes}), "0.bias is I32 in the file"},
    };
    int ranks = 2;
    for (const auto& [bytes, why] : cases) {
        write_file(bad, bytes);
        ranks = 2 - ranks;  // in turns one process alone, and two
        INFO(ranks << " ranks: " << why);
        const Result train =
            run_program(ranks, run.with({{"run.init_from", bad}, {"run.resume", "none"}}).arguments(), 3);
        CHECK_THAT(train.err, contains(bad));
        CHECK_THAT(train.err, contains(why));
        CHECK_THAT(run_program(0, {"eval", bad, run.dir().string()}, 3).err, contains(why));
    }
    CHECK(read_file(run.dir() / "metrics.jsonl") == metrics);

    CHECK_THAT(run.with({{"run.init_from", folder / "no.safetensors"}, {"run.resume", "none"}}).expect(3).err,
               contains("no.safetensors: cannot be opened"));
    CHECK_THAT(run.with({{"run.init_from", bad}, {"run.resume", run.best_path()}}).expect(2).err,
               contains("only one of the two"));
}
