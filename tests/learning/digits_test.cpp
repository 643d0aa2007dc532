// Real handwritten digits, learned from what the repository ships.
#include <algorithm>

#include "support/catch.hpp"
#include "support/runs.hpp"

using namespace trireme;
using namespace trireme::testing;

namespace {

double best_accuracy(const Run& run) {
    const std::vector<double> all = run.column("valid", "accuracy");
    return *std::max_element(all.begin(), all.end());
}

}  // namespace

TEST_CASE("two ranks learn the digits to 97 % of the validation set", "[learning-digits]") {
    const TempDir folder;
    const Result imported = trireme::testing::trireme(
        0, {"import", source_dir() / "data/digits/digits.csv.gz", "--output=" + (folder / "data").string(),
            "--split=0.8,0.2", "--shards=3"});
    INFO(imported.out << imported.err);
    REQUIRE(imported.status == 0);
    const Run run(folder / "run", {{"data.train", folder / "data/train-*.h5"},
                                   {"data.valid", folder / "data/valid-*.h5"},
                                   {"data.normalize", "standard"},
                                   {"model.width", "128"},
                                   {"model.dropout", "0.3"},
                                   {"model.batchnorm", "true"},
                                   {"train.batch", "64"},
                                   {"train.epochs", "25"},
                                   {"optim.lr", "0.003"},
                                   {"schedule.name", "cosine"},
                                   {"run.threads", "1"}});
    run.expect(0, 2);
    for (const char* precision : {"bf16", "fp16"}) {
        const Run low = run.at(folder / precision).with({{"train.precision", precision}});
        low.expect(0, 2);
        INFO(precision);
        // Half a point, which are two of 359 samples.
        REQUIRE(best_accuracy(low) >= best_accuracy(run) - 0.0056);
    }
    const double samples = run.events("start")[0]["samples"];
    REQUIRE(samples + run.column("valid", "count").back() == 1797);
    REQUIRE(run.column("valid", "accuracy").size() == 25);
    const double accuracy = run.column("valid", "accuracy").back();
    REQUIRE(accuracy >= 0.97);
    REQUIRE(accuracy <= 0.998);  // 359 samples: a perfect score would mean that they are in the training set
    const Event eval = evaluate(1, run.best_path(), folder / "data/valid-*.h5");
    REQUIRE(eval["accuracy"] == best_accuracy(run));
}
