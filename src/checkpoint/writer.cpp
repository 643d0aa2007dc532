#include "trireme/checkpoint/writer.hpp"

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "trireme/base/clock.hpp"
#include "trireme/base/recorder.hpp"

namespace trireme {
namespace {

std::vector<Range> ranges_of(const Column& column) {
    std::vector<Range> ranges;
    for (const Column::Piece& piece : column.pieces()) ranges.push_back(piece.range);
    return ranges;
}

/// The columns that a checkpoint holds, for the parts that this rank keeps.
ArenaOptions options_of(const Arena& arena) {
    ArenaOptions options{.average = arena.average.has_value(), .pieces = ArenaPieces{}};
    options.pieces->weights = ranges_of(arena.weights);
    for (const Column& state : arena.states) options.state_names.push_back(state.name());
    if (!arena.states.empty()) options.pieces->states = ranges_of(arena.states.front());
    if (arena.average) options.pieces->updated = ranges_of(*arena.average);
    return options;
}

/// A group of its own for a thread that takes no core from those that train.
std::unique_ptr<Communicator> background(Communicator& comm) {
    std::unique_ptr<Communicator> own = comm.duplicate();
    own->rest_while_waiting();
    return own;
}

void copy(Device& device, const Column& from, Column& to) {
    if (from.bytes() > 0) device.copy_to_host(to.whole().data, from.whole().data, from.bytes());
}

}  // namespace

/// The thread, its group of ranks, and the copy that it writes from.
class CheckpointWriter::Behind {
public:
    explicit Behind(CheckpointWriter& writer)
        : writer_(writer),
          comm_(background(writer.comm_)),
          device_(writer.arena_.device.staging()),
          thread_([this, recorder = Recorder::here()] {
              const Recorder::Member member(recorder, "checkpoints");
              serve();
          }) {}
    ~Behind() {
        {
            const std::lock_guard lock(mutex_);
            closing_ = true;
        }
        changed_.notify_all();
        thread_.join();
    }

    void add(CheckpointOrder order) {
        const Stopwatch watch;
        const std::int64_t step = order.meta.position.attempts();
        if (step != copied_step_) {
            wait();
            take_copy();
            copied_step_ = step;
        }
        {
            const std::lock_guard lock(mutex_);
            orders_.push_back({std::move(order), watch.seconds()});
        }
        changed_.notify_all();
    }
    void wait() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return (copy_ && orders_.empty()) || error_; });
        if (error_) std::rethrow_exception(error_);
    }
    bool failed() const {
        const std::lock_guard lock(mutex_);
        return error_ != nullptr;
    }
    std::int64_t pending() const {
        const std::lock_guard lock(mutex_);
        return static_cast<std::int64_t>(orders_.size());
    }
    std::vector<SavedCheckpoint> take_saved() {
        const std::lock_guard lock(mutex_);
        return std::exchange(saved_, {});
    }

private:
    struct Entry {
        CheckpointOrder order;
        double stall;
    };

    void take_copy() {
        const Span span(Activity::checkpoint, "copying the state");
        const Arena& arena = writer_.arena_;
        copy(arena.device, arena.weights, copy_->weights);
        for (std::size_t i = 0; i < arena.states.size(); ++i)
            copy(arena.device, arena.states[i], copy_->states[i]);
        if (arena.average) copy(arena.device, *arena.average, *copy_->average);
    }

    void serve() {
        try {
            make_room();
            while (write_next()) {
            }
        } catch (...) {
            const std::lock_guard lock(mutex_);
            error_ = std::current_exception();
            changed_.notify_all();
        }
    }
    /// Fresh memory takes its time: here it takes none of the training's.
    void make_room() {
        auto copy = std::make_unique<Arena>(*device_, writer_.table_, options_of(writer_.arena_));
        const std::lock_guard lock(mutex_);
        copy_ = std::move(copy);
        changed_.notify_all();
    }
    bool write_next() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return closing_ || !orders_.empty(); });
        if (orders_.empty()) return false;
        const Entry& entry = orders_.front();  // stays where it is while others are added
        lock.unlock();
        SavedCheckpoint saved = writer_.write(*comm_, *copy_, entry.order);
        saved.stall = entry.stall;
        lock.lock();
        saved_.push_back(std::move(saved));
        orders_.pop_front();
        changed_.notify_all();
        return true;
    }

    CheckpointWriter& writer_;
    std::unique_ptr<Communicator> comm_;
    std::unique_ptr<Device> device_;
    std::int64_t copied_step_ = -1;

    mutable std::mutex mutex_;
    std::unique_ptr<Arena> copy_;
    std::condition_variable changed_;
    std::deque<Entry> orders_;  ///< the first one is being written
    std::vector<SavedCheckpoint> saved_;
    std::exception_ptr error_;
    bool closing_ = false;
    std::thread thread_;
};

CheckpointWriter::CheckpointWriter(Communicator& comm, const ParameterTable& table, const Arena& arena,
                                   bool behind)
    : comm_(comm), table_(table), arena_(arena) {
    if (behind) behind_ = std::make_unique<Behind>(*this);
}

CheckpointWriter::~CheckpointWriter() = default;

void CheckpointWriter::save(CheckpointOrder order) {
    if (behind_)
        behind_->add(std::move(order));
    else
        saved_.push_back(write(comm_, arena_, order));
}

void CheckpointWriter::finish() {
    if (behind_) behind_->wait();
}

bool CheckpointWriter::failed() const {
    return behind_ && behind_->failed();
}

std::int64_t CheckpointWriter::pending() const {
    return behind_ ? behind_->pending() : 0;
}

std::vector<SavedCheckpoint> CheckpointWriter::take_saved() {
    return behind_ ? behind_->take_saved() : std::exchange(saved_, {});
}

SavedCheckpoint CheckpointWriter::write(Communicator& comm, const Arena& arena,
                                        const CheckpointOrder& order) const {
    const Span span(Activity::checkpoint, "saving of step", order.meta.position.attempts());
    SavedCheckpoint saved = save_checkpoint(comm, order.path, table_, arena, order.meta);
    if (order.keep > 0) retain_checkpoints(comm, order.run_dir, order.keep);
    return saved;
}

}  // namespace trireme
