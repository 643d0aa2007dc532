#include "train/resume.hpp"

#include <filesystem>
#include <vector>

#include "train/experiment.hpp"
#include "trireme/base/error.hpp"
#include "trireme/comm/agree.hpp"

namespace trireme {
namespace {

std::optional<std::string> choose_checkpoint(Runtime& runtime, const Config& config) {
    if (config.run.resume == "none") return std::nullopt;
    const bool automatic = config.run.resume == "auto";
    const bool run_directory =
        broadcast_value(runtime.mesh.world(), std::filesystem::is_directory(config.run.resume) ? 1 : 0) != 0;
    if (!automatic && !run_directory) return config.run.resume;
    std::vector<std::string> rejected;
    const auto newest =
        newest_checkpoint(runtime.mesh.world(), automatic ? config.run.dir : config.run.resume, rejected);
    for (const std::string& why : rejected) runtime.log.warning("not used: " + why);
    if (!newest && !automatic)
        throw Error(
            Status::bad_data,
            "run.resume=" + config.run.resume + ": expected a checkpoint, or a run directory with one",
            Scope::all_ranks);
    return newest;
}

[[noreturn]] void refuse(const std::string& key, const std::string& saved, const std::string& now,
                         const std::string& why) {
    throw usage_error(key + "=" + now + " contradicts the checkpoint, which has " + saved + ": " + why);
}

/// What cannot change in the middle of a run.
void refuse_contradictions(const Config& saved, const Config& now, const CheckpointMeta& meta) {
    if (now.optim.name != meta.optimizer)
        refuse("optim.name", meta.optimizer, now.optim.name, "its moments mean something else");
    if (make_optimizer(optimizer_options(now))->state_names() != meta.state_names) {
        const std::string key = now.optim.name.starts_with("adam") ? "optim.amsgrad" : "optim.momentum";
        refuse(key, get_config(saved, key), get_config(now, key),
               "its moments cannot be had later, or dropped");
    }
    if (now.train.lanes != saved.train.lanes)
        refuse("train.lanes", std::to_string(saved.train.lanes), std::to_string(now.train.lanes),
               "the lanes define the run's arithmetic");
    if (now.data.normalize != saved.data.normalize)
        refuse("data.normalize", saved.data.normalize, now.data.normalize,
               "the weights have learned from inputs as they were");
    if (meta.position.step_in_epoch == 0) return;
    for (const char* key : {"train.batch", "run.seed", "data.shuffle", "data.chunk", "data.drop_last"})
        if (get_config(saved, key) != get_config(now, key))
            refuse(key, get_config(saved, key), get_config(now, key),
                   "it would change which samples the epoch that was begun still has to take");
}

}  // namespace

std::optional<ResumePoint> find_resume_point(Runtime& runtime, Config& config) {
    const std::optional<std::string> source = choose_checkpoint(runtime, config);
    if (!source) return std::nullopt;
    ResumePoint point{.source = *source, .meta = read_checkpoint_meta(runtime.mesh.world(), *source)};
    namespace fs = std::filesystem;
    std::error_code ignored;
    point.own =
        fs::equivalent(fs::path(*source).parent_path(), fs::path(config.run.dir) / "checkpoints", ignored);

    const Config saved = config_from_text(point.meta.config, *source + ":/config");
    if (config.train.lanes == 0) config.train.lanes = saved.train.lanes;
    for (const std::string& difference : config_differences(saved, config))
        if (!difference.starts_with("run.") || difference.starts_with("run.seed"))
            runtime.log.info("changed since the checkpoint: " + difference);
    refuse_contradictions(saved, config, point.meta);
    point.scaled = scaler_options(saved).enabled;
    return point;
}

}  // namespace trireme
