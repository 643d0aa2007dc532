// The loader: the right samples in the right form, whatever the files look like and however far it reads
// ahead.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <vector>

#include "comm/mpi_communicator.hpp"
#include "support/catch.hpp"
#include "support/data_files.hpp"
#include "support/process.hpp"
#include "trireme/base/error.hpp"
#include "trireme/data/loader.hpp"

using namespace trireme;
using namespace trireme::testing;
namespace fs = std::filesystem;

namespace {

DatasetLayout layout_of(const fs::path& pattern) {
    MpiCommunicator alone(MPI_COMM_SELF, false);
    return open_dataset(alone, pattern.string());
}

LoaderOptions options_for(const DatasetLayout& layout, std::int64_t batch, std::int64_t lanes = 1) {
    LoaderOptions options;
    options.plan = {layout.rows(), batch, lanes, false};
    options.my_lanes = {0, lanes};
    return options;
}

/// A copy of everything in a batch.
struct Seen {
    std::int64_t epoch, step, lane, first, batch;
    std::vector<std::int64_t> ids;
    std::vector<float> x, y;
    friend bool operator==(const Seen&, const Seen&) = default;
};

Seen copy_of(const LaneBatch& batch) {
    Seen seen{batch.epoch, batch.step, batch.lane, batch.first_in_batch, batch.batch_samples, {}, {}, {}};
    seen.ids.assign(batch.ids.begin(), batch.ids.end());
    const auto x = batch.x.span<float>();
    seen.x.assign(x.begin(), x.end());
    if (batch.y.dtype == DType::i32)
        for (const std::int32_t label : batch.y.span<std::int32_t>())
            seen.y.push_back(static_cast<float>(label));
    else
        for (const float target : batch.y.span<float>()) seen.y.push_back(target);
    return seen;
}

std::vector<Seen> load(const DatasetLayout& layout, const LoaderOptions& options, std::int64_t batches,
                       std::int64_t epoch = 0, std::int64_t step = 0) {
    Loader loader(layout, options);
    loader.start(epoch, step);
    std::vector<Seen> all;
    for (std::int64_t i = 0; i < batches; ++i) all.push_back(copy_of(loader.next()));
    return all;
}

std::vector<float> stored_sample(const Samples& samples, std::int64_t id) {
    const auto begin = samples.x.begin() + id * samples.sample.count();
    return {begin, begin + samples.sample.count()};
}

std::string message_of(const std::function<void()>& action) {
    try {
        action();
    } catch (const Error& error) {
        CHECK(error.status() == Status::bad_data);
        return error.what();
    }
    return "no error";
}

}  // namespace

TEST_CASE("every sample comes once an epoch, with its values and its place", "[unit][data]") {
    const TempDir dir;
    const Samples samples = numbered_samples(23, Shape{5});
    const DatasetLayout layout = layout_of(write_shards(dir.path(), samples, {4, 0, 12, 7}));
    const std::int64_t lanes = GENERATE(1, 3, 7), batch = GENERATE(1, 4, 23, 50);
    const std::string cache = GENERATE("memory", "none");
    LoaderOptions options = options_for(layout, batch, lanes);
    options.cache = cache;
    options.prefetch = GENERATE(1, 4);
    options.shuffle = GENERATE(Shuffle::full, Shuffle::none, Shuffle::chunk);
    options.chunk = 5;

    Loader loader(layout, options);
    loader.start(0, 0);
    for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
        const Order order(23, options.shuffle, options.seed, epoch, options.chunk);
        for (std::int64_t step = 0; step < options.plan.steps(); ++step)
            for (std::int64_t lane = 0; lane < lanes; ++lane) {
                const LaneBatch& found = loader.next();
                const Range positions = options.plan.lane(step, lane);
                REQUIRE((found.epoch == epoch && found.step == step && found.lane == lane));
                REQUIRE(found.positions == positions);
                REQUIRE(found.first_in_batch == positions.begin - step * batch);
                REQUIRE(found.batch_samples == options.plan.step(step).size());
                REQUIRE(found.x.shape == Shape{positions.size(), 5});
                REQUIRE(found.y.shape == Shape{positions.size()});
                for (std::int64_t i = 0; i < found.samples(); ++i) {
                    const std::int64_t id = found.ids[static_cast<std::size_t>(i)];
                    REQUIRE(id == order(positions.begin + i));
                    const float* x = found.x.as<float>() + i * 5;
                    REQUIRE(std::vector<float>(x, x + 5) == stored_sample(samples, id));
                    REQUIRE(found.y.as<std::int32_t>()[i] == id % 10);
                }
            }
    }
    CHECK(loader.cached() == (cache == "memory"));
}

TEST_CASE("a rank gets its own lanes only", "[unit][data]") {
    const TempDir dir;
    const DatasetLayout layout = layout_of(write_shards(dir.path(), numbered_samples(20, Shape{2}), {20}));
    LoaderOptions options = options_for(layout, 10, 4);
    const std::vector<Seen> all = load(layout, options, 8);
    options.my_lanes = {1, 3};
    const std::vector<Seen> mine = load(layout, options, 4);
    CHECK(mine == std::vector<Seen>{all[1], all[2], all[5], all[6]});
}

TEST_CASE("the same rows give the same batches in one file or in shards", "[unit][data]") {
    const TempDir dir;
    const Samples samples = numbered_samples(100, Shape{3});
    const auto batches = [&](const std::string& pattern) {
        const DatasetLayout layout = layout_of(pattern);
        return load(layout, options_for(layout, 8, 2), 60);
    };
    CHECK(batches(write_shards(dir / "one", samples, {100})) ==
          batches(write_shards(dir / "five", samples, {1, 50, 0, 29, 20})));
}

TEST_CASE("starting at any epoch and step goes on as if never stopped", "[unit][data]") {
    const TempDir dir;
    const DatasetLayout layout =
        layout_of(write_shards(dir.path(), numbered_samples(23, Shape{1, 6, 6}), {23}));
    LoaderOptions options = options_for(layout, 5, 2);
    options.crop = 2;
    options.flip = true;
    const std::vector<Seen> all = load(layout, options, 40);  // five steps of two lanes an epoch
    const std::vector<Seen> rest(all.begin() + 16, all.end());
    CHECK(load(layout, options, 24, 1, 3) == rest);
    CHECK(load(layout, options, 20, 1, 5) ==
          std::vector<Seen>(all.begin() + 20, all.end()));  // at an epoch's end

    Loader loader(layout, options);
    for (int again = 0; again < 3; ++again) {
        loader.start(1, 3);
        for (int i = 0; i < 5; ++i) REQUIRE(copy_of(loader.next()) == rest[static_cast<std::size_t>(i)]);
    }
}

TEST_CASE("a chunked and compressed copy gives the batches of the contiguous one", "[unit][data]") {
    const TempDir dir;
    const Samples samples = numbered_samples(3000, Shape{10});
    const Storage gzip{DType::f32, false, 1000, 4};
    write_samples(dir / "plain.h5", samples);
    write_samples(dir / "gzip.h5", samples, gzip, {DType::i64, false, 1000, 4});
    const std::string cache = GENERATE("memory", "none");
    const auto batches = [&](const char* name) {
        const DatasetLayout layout = layout_of(dir / name);
        LoaderOptions options = options_for(layout, 64);
        options.cache = cache;
        return load(layout, options, 60);
    };
    CHECK(batches("gzip.h5") == batches("plain.h5"));
}

TEST_CASE("a set larger than one piece moves into memory while batches come", "[unit][data]") {
    const TempDir dir;
    const std::int64_t rows = 700, width = 4000;  // 11 MB as float32
    const Samples samples = numbered_samples(rows, Shape{width});
    write_samples(dir / "a.h5", samples);
    const DatasetLayout layout = layout_of(dir / "a.h5");
    LoaderOptions options = options_for(layout, 16);
    options.cache = "none";
    const std::vector<Seen> direct = load(layout, options, 90);
    options.cache = "memory";
    Loader loader(layout, options);
    loader.start(0, 0);
    for (const Seen& expected : direct) REQUIRE(copy_of(loader.next()) == expected);
    CHECK(loader.cached());
}

TEST_CASE("stored types of either byte order become the same inputs", "[unit][data]") {
    const TempDir dir;
    Samples samples = numbered_samples(9, Shape{4});
    for (std::size_t i = 0; i < samples.x.size(); i += 3) samples.x[i] *= 0.5;  // exact in every real type
    const auto inputs = [&](const Storage& storage) {
        write_samples(dir / "a.h5", samples, storage, {DType::u8, storage.big_endian});
        const DatasetLayout layout = layout_of(dir / "a.h5");
        return load(layout, options_for(layout, 9), 1);
    };
    const std::vector<Seen> reference = inputs({DType::f32});
    for (const DType type : {DType::f32, DType::f64, DType::f16}) {
        CHECK(inputs({type, true}) == reference);
        CHECK(inputs({type, false}) == reference);
    }
    for (double& value : samples.x) value = std::floor(value);
    const std::vector<Seen> whole = inputs({DType::f32});
    for (const DType type : {DType::u8, DType::i16, DType::i32, DType::u32, DType::i64, DType::u64})
        for (const bool big_endian : {false, true}) CHECK(inputs({type, big_endian}) == whole);
}

TEST_CASE("images are laid channels-last and not transposed", "[unit][data]") {
    const TempDir dir;
    const std::int64_t channels = GENERATE(1, 2, 3), height = 4, width = 6;
    const Samples samples = numbered_samples(5, Shape{channels, height, width});
    write_samples(dir / "a.h5", samples, {DType::u8});
    const DatasetLayout layout = layout_of(dir / "a.h5");
    LoaderOptions options = options_for(layout, 5);
    options.shuffle = Shuffle::none;
    for (std::int64_t c = 0; c < channels; ++c) {
        options.normalization.shift.push_back(static_cast<float>(c));
        options.normalization.scale.push_back(0.5f);
    }
    Loader loader(layout, options);
    loader.start(0, 0);
    const LaneBatch& batch = loader.next();
    CHECK(batch.x.shape == Shape{5, channels, height, width});
    for (std::int64_t n = 0; n < 5; ++n)
        for (std::int64_t c = 0; c < channels; ++c)
            for (std::int64_t h = 0; h < height; ++h)
                for (std::int64_t w = 0; w < width; ++w) {
                    const double stored =
                        samples.x[static_cast<std::size_t>(((n * channels + c) * height + h) * width + w)];
                    const float found = batch.x.as<float>()[((n * height + h) * width + w) * channels + c];
                    REQUIRE(found == (static_cast<float>(stored) - static_cast<float>(c)) * 0.5f);
                }
}

TEST_CASE("an augmented image is a window of the padded one, chosen by position", "[unit][data]") {
    const TempDir dir;
    const std::int64_t height = 5, width = 7;
    const int crop = 2;
    Samples samples = numbered_samples(1, Shape{2, height, width});
    for (std::size_t i = 0; i < samples.x.size(); ++i) samples.x[i] = static_cast<double>(i + 1);
    for (int copies = 0; copies < 6; ++copies)
        samples.x.insert(samples.x.end(), samples.x.begin(), samples.x.begin() + samples.sample.count());
    samples.y.resize(samples.x.size() / 70, 0.0);
    write_samples(dir / "a.h5", samples);
    const DatasetLayout layout = layout_of(dir / "a.h5");
    LoaderOptions options = options_for(layout, layout.rows());
    options.crop = crop;
    options.flip = true;
    const Seen seen = load(layout, options, 1, 3)[0];
    const auto padded = [&](std::int64_t c, std::int64_t h, std::int64_t w) {
        const bool inside = h >= 0 && h < height && w >= 0 && w < width;
        return inside ? static_cast<float>((c * height + h) * width + w + 1) : 0.0f;
    };
    const auto matches = [&](std::int64_t n, std::int64_t down, std::int64_t right, bool flipped) {
        for (std::int64_t h = 0; h < height; ++h)
            for (std::int64_t w = 0; w < width; ++w)
                for (std::int64_t c = 0; c < 2; ++c) {
                    const float found =
                        seen.x[static_cast<std::size_t>(((n * height + h) * width + w) * 2 + c)];
                    if (found != padded(c, h + down, (flipped ? width - 1 - w : w) + right)) return false;
                }
        return true;
    };
    std::vector<int> windows;
    for (std::int64_t n = 0; n < layout.rows(); ++n)
        for (int down = -crop; down <= crop; ++down)
            for (int right = -crop; right <= crop; ++right)
                for (const bool flipped : {false, true})
                    if (matches(n, down, right, flipped))
                        windows.push_back((down * 10 + right) * 2 + flipped);
    CHECK(windows.size() == static_cast<std::size_t>(layout.rows()));
    CHECK(std::adjacent_find(windows.begin(), windows.end(), std::not_equal_to<>()) != windows.end());
    CHECK(load(layout, options, 1, 4)[0].x != seen.x);  // another epoch, other windows
}

TEST_CASE("targets of regression keep their columns", "[unit][data]") {
    const TempDir dir;
    Samples samples = numbered_samples(6, Shape{2});
    const std::int64_t columns = GENERATE(0, 3);
    samples.targets = columns;
    samples.y.clear();
    for (int i = 0; i < 6 * std::max<int>(static_cast<int>(columns), 1); ++i) samples.y.push_back(0.25 * i);
    write_samples(dir / "a.h5", samples, {}, {DType::f64});
    const DatasetLayout layout = layout_of(dir / "a.h5");
    LoaderOptions options = options_for(layout, 6);
    options.class_labels = false;
    options.shuffle = Shuffle::none;
    Loader loader(layout, options);
    loader.start(0, 0);
    const LaneBatch& batch = loader.next();
    CHECK(batch.y.shape == Shape{6, std::max<std::int64_t>(columns, 1)});
    CHECK(copy_of(batch).y == std::vector<float>(samples.y.begin(), samples.y.end()));
}

TEST_CASE("a value that is not finite is named when its batch comes, at any depth of reading ahead",
          "[unit][data]") {
    const TempDir dir;
    const bool in_targets = GENERATE(false, true);
    const double bad =
        GENERATE(std::numeric_limits<double>::quiet_NaN(), -std::numeric_limits<double>::infinity(), 1e300);
    Samples samples = numbered_samples(60, Shape{4});
    (in_targets ? samples.y[37] : samples.x[37 * 4 + 3]) = bad;
    const std::string pattern = write_shards(dir.path(), samples, {20, 20, 20}, {DType::f64}, {DType::f64});
    const DatasetLayout layout = layout_of(pattern);
    LoaderOptions options = options_for(layout, 10);
    options.shuffle = Shuffle::none;
    options.class_labels = false;
    options.prefetch = GENERATE(1, 4);
    Loader loader(layout, options);
    loader.start(0, 0);
    for (int step = 0; step < 3; ++step) REQUIRE(loader.next().step == step);
    const std::string expected = std::string("part-1.h5:") + (in_targets ? "/y" : "/x") + " row 17: value " +
                                 (std::isnan(bad)   ? "nan is not a finite number"
                                  : std::isinf(bad) ? "-inf is not a finite number"
                                                    : "1e+300 is too large for float32");
    for (int again = 0; again < 2; ++again)
        REQUIRE_THAT(message_of([&] { loader.next(); }), contains(expected));
    loader.start(0, 0);
    CHECK(loader.next().step == 0);
}

TEST_CASE("labels out of range are named", "[unit][data]") {
    const TempDir dir;
    Samples samples = numbered_samples(10, Shape{2}, 10);
    samples.y[6] = GENERATE(-1.0, 12.0);
    write_samples(dir / "a.h5", samples);
    const DatasetLayout layout = layout_of(dir / "a.h5");
    LoaderOptions options = options_for(layout, 10);
    options.classes = 10;
    REQUIRE_THAT(message_of([&] { load(layout, options, 1); }),
                 contains("a.h5:/y row 6: expected a class label from 0 to 9, found "));
    options.ignore_index = static_cast<std::int64_t>(samples.y[6]);
    CHECK(load(layout, options, 1).size() == 1);
}

TEST_CASE("a shard that is cut while it is read ends in an error of next()", "[unit][data]") {
    const TempDir dir;
    write_shards(dir.path(), numbered_samples(20, Shape{2}), {10, 10});
    const DatasetLayout layout = layout_of(dir / "part-*.h5");
    LoaderOptions options = options_for(layout, 5);
    options.shuffle = Shuffle::none;
    options.cache = "none";
    truncate_file(dir / "part-1.h5", 0.5);
    Loader loader(layout, options);
    loader.start(0, 0);
    const auto one_epoch = [&] {
        for (int step = 0; step < 4; ++step) loader.next();
    };
    REQUIRE_THAT(message_of(one_epoch), contains("part-1.h5: expected a file of"));
}

TEST_CASE("options that make no sense are refused by key", "[unit][data]") {
    const TempDir dir;
    Samples samples = numbered_samples(6, Shape{2});
    samples.targets = 2;
    samples.y.resize(12, 1.0);
    write_samples(dir / "a.h5", samples, {}, {DType::i32});
    const DatasetLayout layout = layout_of(dir / "a.h5");
    LoaderOptions good = options_for(layout, 6);
    good.class_labels = false;
    const auto refused = [&](const std::function<void(LoaderOptions&)>& change, const std::string& message) {
        LoaderOptions options = good;
        change(options);
        REQUIRE_THROWS_WITH(Loader(layout, options), contains(message));
    };
    CHECK_NOTHROW(Loader(layout, good));
    refused([](auto& o) { o.prefetch = 0; }, "data.prefetch: expected at least 1, found 0");
    refused([](auto& o) { o.cache = "some"; }, "data.cache: expected auto, memory or none, found 'some'");
    refused([](auto& o) { o.flip = true; }, "data.augment: expected images");
    refused([](auto& o) { o.class_labels = true; },
            "a.h5:/y: expected one class label for each sample, found 2");
    refused([](auto& o) { o.plan.samples = 7; }, "expected at most 6, found 7");
}

TEST_CASE("a rank without lanes has a loader that nothing is asked of", "[unit][data]") {
    const TempDir dir;
    write_samples(dir / "a.h5", numbered_samples(6, Shape{2}));
    const DatasetLayout layout = layout_of(dir / "a.h5");
    LoaderOptions options = options_for(layout, 6);
    options.my_lanes = {};
    Loader loader(layout, options);
    loader.start(0, 0);
    CHECK_THROWS_AS(loader.next(), Error);
}
