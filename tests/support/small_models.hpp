#pragma once
// Trainings of a few units in which every way to cut a batch shows: batches that nothing divides, dropout,
// BatchNorm, augmentation.

#include <string>

#include "support/runs.hpp"

namespace trireme::testing {

struct SmallModel {
    std::string name;
    Shape sample;
    Keys keys;
};

inline SmallModel small_mlp() {
    return {"mlp", Shape{6}, {{"model.width", "16"}, {"model.dropout", "0.4"}, {"model.batchnorm", "true"}}};
}

inline SmallModel small_cnn() {
    return {"cnn",
            Shape{1, 8, 8},
            {{"model.arch", "cnn"},
             {"model.channels", "3"},
             {"model.batchnorm", "true"},
             {"data.augment", "crop=1 flip"}}};
}

// Seven steps, the last of each epoch shorter than the rest and with lanes of unequal size. Validation data
// lie in <name>-valid.h5.
inline Run small_run(const TempDir& folder, const SmallModel& model, const Keys& more = {}) {
    const std::string data = folder / (model.name + ".h5"), valid = folder / (model.name + "-valid.h5");
    if (!std::filesystem::exists(data)) {
        write_samples(data, clusters(75, model.sample, 5));
        write_samples(valid, clusters(31, model.sample, 5, 2));
    }
    Keys keys = {{"data.train", data},     {"data.valid", valid},     {"train.batch", "21"},
                 {"train.max_steps", "7"}, {"train.epochs", "2"},     {"optim.name", "sgd"},
                 {"optim.lr", "0.1"},      {"optim.momentum", "0.9"}, {"optim.weight_decay", "0.01"},
                 {"run.threads", "1"}};
    keys.insert(keys.end(), model.keys.begin(), model.keys.end());
    return Run(folder / (model.name + "-run"), keys).with(more);
}

}  // namespace trireme::testing
