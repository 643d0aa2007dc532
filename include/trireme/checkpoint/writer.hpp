// Saves a run's checkpoints one after another: at once, or behind the training's back, from a copy of the
// state and in a thread of its own, so that training stands still for the copying alone.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trireme/checkpoint/checkpoint.hpp"

namespace trireme {

/// What is to be saved, and what follows.
struct CheckpointOrder {
    std::string path;
    CheckpointMeta meta;
    std::string run_dir;    ///< whose older step checkpoints go afterwards,
    std::int64_t keep = 0;  ///< all but the newest so many; 0: none goes
};

class CheckpointWriter {
public:
    /// `comm`, `table` and `arena` are kept by reference. `behind`: write in a thread of its own, with a
    /// group of its own; the copy takes as much host memory as weights, optimizer's states and average.
    /// Collective.
    CheckpointWriter(Communicator& comm, const ParameterTable& table, const Arena& arena, bool behind);
    /// Ends what has been ordered.
    ~CheckpointWriter();
    CheckpointWriter(const CheckpointWriter&) = delete;
    CheckpointWriter& operator=(const CheckpointWriter&) = delete;

    /// Returns when the state may change again. Orders of one step share a copy; that of another step waits
    /// until the earlier ones are written. Collective. @throws Error as save_checkpoint(), of an earlier
    /// order too; nothing is written any more then.
    void save(CheckpointOrder order);
    /// Waits until everything is written. Collective. @throws as save().
    void finish();

    /// An order has failed here; finish() will throw on all ranks.
    bool failed() const;
    /// Orders that are not written yet.
    std::int64_t pending() const;
    /// Those written since the last call.
    std::vector<SavedCheckpoint> take_saved();

private:
    class Behind;
    SavedCheckpoint write(Communicator& comm, const Arena& arena, const CheckpointOrder& order) const;

    Communicator& comm_;
    const ParameterTable& table_;
    const Arena& arena_;
    std::vector<SavedCheckpoint> saved_;
    std::unique_ptr<Behind> behind_;
};

}  // namespace trireme
