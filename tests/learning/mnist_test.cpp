// 10,000 digits of MNIST with the cnn preset, where the data lie beside the repository.
#include "support/catch.hpp"
#include "support/runs.hpp"

using namespace trireme;
using namespace trireme::testing;

TEST_CASE("two ranks learn MNIST-10k to 97.5 % of 2,000 images", "[learning-mnist]") {
    const std::filesystem::path source = shared_dir() / "data/mnist10k";
    if (shared_dir().empty() || !std::filesystem::exists(source)) {
        WARN("skipped: there is no " + source.string());
        return;
    }
    const TempDir folder;
    const Result imported = trireme::testing::trireme(
        0, {"import", source / "t10k-images-idx3-ubyte.gz", source / "t10k-labels-idx1-ubyte.gz",
            "--output=" + (folder / "data").string(), "--split=0.8,0.2", "--shards=2"});
    INFO(imported.out << imported.err);
    REQUIRE(imported.status == 0);
    REQUIRE(read_shape(folder / "data/valid-000.h5", "/x").inner() == Shape{1, 28, 28});
    const Run run(folder / "run", {{"data.train", folder / "data/train-*.h5"},
                                   {"data.valid", folder / "data/valid-*.h5"},
                                   {"data.normalize", "unit"},
                                   {"model.arch", "cnn"},
                                   {"model.channels", "16"},
                                   {"train.batch", "64"},
                                   {"train.epochs", "5"},
                                   {"optim.lr", "0.002"},
                                   {"schedule.name", "cosine"}});
    const auto accuracy = [](const Run& here) {
        const Result result = trireme::testing::trireme(2, here.arguments(), {.timeout = 110});
        INFO(result.out << result.err);
        REQUIRE(result.status == 0);
        REQUIRE(here.column("valid", "count").back() == 2000);
        return here.column("valid", "accuracy").back();
    };
    const double exact = accuracy(run);
    REQUIRE(exact >= 0.975);
    for (const char* precision : {"bf16", "fp16"}) {
        INFO(precision);
        REQUIRE(accuracy(run.at(folder / precision).with({{"train.precision", precision}})) >= exact - 0.005);
    }
}
