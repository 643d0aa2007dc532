#include "trireme/train/export.hpp"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "train/experiment.hpp"
#include "train/run_directory.hpp"
#include "train/safetensors.hpp"
#include "train/torch_names.hpp"
#include "train/weight_source.hpp"
#include "trireme/base/build_info.hpp"
#include "trireme/base/error.hpp"
#include "trireme/checkpoint/checkpoint.hpp"
#include "trireme/comm/agree.hpp"
#include "trireme/io/hdf5.hpp"
#include "trireme/ops/ops.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;

void prepare_output(const std::string& output, const std::string& checkpoint) {
    refuse_precious_output(output, checkpoint);
    const fs::path folder = fs::path(output).parent_path();
    std::error_code error;
    if (!folder.empty()) fs::create_directories(folder, error);
    if (error) throw failure("cannot create the folder " + folder.string() + ": " + error.message());
}

/// The data sets of a group, each as a tensor under its name in PyTorch.
struct Inventory {
    std::vector<std::string> datasets;
    std::vector<SafetensorsEntry> tensors;
};

Inventory take_inventory(const io::File& file, const std::string& group,
                         const std::vector<std::string>& layers, DType dtype) {
    Inventory inventory;
    inventory.datasets = file.children(group);
    const std::vector<std::string> names = torch_names(layers, inventory.datasets);
    for (std::size_t i = 0; i < names.size(); ++i) {
        std::string& dataset = inventory.datasets[i];
        dataset = group + "/" + dataset;
        inventory.tensors.push_back(
            {.name = names[i], .dtype = dtype, .shape = file.open(dataset).info().shape});
    }
    return inventory;
}

void write_elements(const io::File& file, const Inventory& inventory, DType dtype,
                    SafetensorsWriter& writer) {
    constexpr std::int64_t piece = std::int64_t{1} << 20;
    const std::unique_ptr<Device> device = make_device("cpu");
    const std::unique_ptr<Ops> ops = make_ops(*device, 1);
    std::vector<float> values(piece);
    std::vector<std::uint16_t> rounded(dtype == DType::f32 ? 0 : piece);
    for (const std::string& name : inventory.datasets) {
        const io::Dataset dataset = file.open(name);
        const std::int64_t elements = dataset.info().shape.count();
        for (std::int64_t at = 0; at < elements; at += piece) {
            const std::int64_t count = std::min(piece, elements - at);
            dataset.read_flat({at, at + count}, DType::f32, values.data());
            if (dtype == DType::f32) {
                writer.write(values.data(), count * 4);
            } else {
                ops->copy(view_of(values.data(), Shape{count}), {rounded.data(), dtype, Shape{count}});
                writer.write(rounded.data(), count * 2);
            }
        }
    }
}

}  // namespace

ExportedWeights export_weights(Communicator& comm, const std::string& checkpoint, const std::string& output,
                               const ExportOptions& options) {
    const CheckpointMeta meta = read_checkpoint_meta(comm, checkpoint);
    const Config config = config_of(checkpoint, meta);
    ExportedWeights exported;
    agreed_by_one(comm, [&] {
        prepare_output(output, checkpoint);
        if (options.average && !meta.has_average)
            throw data_error(checkpoint + ": has no averaged weights (train.ema was off when it was saved)");
        const io::File file(checkpoint, io::Access::read);
        const Inventory inventory =
            take_inventory(file, options.average ? "/ema" : "/model",
                           model_description(config, meta.sample).layers, options.dtype);
        SafetensorsMetadata metadata = {{"format", "pt"}, {"trireme", std::string(build_info().version)}};
        put_normalization(metadata, config.data.normalize, {meta.input_shift, meta.input_scale});
        SafetensorsWriter writer(output, inventory.tensors, metadata);
        write_elements(file, inventory, options.dtype, writer);
        exported.bytes = writer.finish();
        exported.tensors = static_cast<std::int64_t>(inventory.tensors.size());
        for (const SafetensorsEntry& tensor : inventory.tensors) exported.elements += tensor.shape.count();
    });
    exported.tensors = broadcast_value(comm, exported.tensors);
    exported.elements = broadcast_value(comm, exported.elements);
    exported.bytes = broadcast_value(comm, exported.bytes);
    return exported;
}

}  // namespace trireme
