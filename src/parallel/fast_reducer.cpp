// reduction=fast: lanes add into one gradient column; buckets of it are all-reduced in place, each as soon as
// the last lane's backward has finished it. With overlap a thread of its own does that while backward goes
// on.
#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "parallel/reducers.hpp"
#include "parallel/wire.hpp"
#include "trireme/param/partition.hpp"

namespace trireme {
namespace {

/// Reduces buckets in the order they are posted, on a communicator that nobody else uses.
class BucketThread {
public:
    BucketThread(Communicator& comm, Wire& wire, const Column& gradients)
        : comm_(comm.duplicate()), wire_(wire), gradients_(gradients) {
        posted_.reserve(1024);
        thread_ = std::thread([this] { run(); });
    }
    ~BucketThread() {
        {
            const std::lock_guard lock(mutex_);
            closing_ = true;
        }
        wake_.notify_all();
        thread_.join();
    }
    BucketThread(const BucketThread&) = delete;
    BucketThread& operator=(const BucketThread&) = delete;

    void post(Range bucket) {
        {
            const std::lock_guard lock(mutex_);
            posted_.push_back(bucket);
        }
        wake_.notify_all();
    }
    /// Until everything posted is reduced. @throws what the thread met.
    void wait() {
        std::unique_lock lock(mutex_);
        idle_.wait(lock, [this] { return done_ == posted_.size() || error_; });
        if (error_) std::rethrow_exception(error_);
        posted_.clear();
        done_ = 0;
    }

private:
    void run() {
        std::unique_lock lock(mutex_);
        while (true) {
            wake_.wait(lock, [this] { return closing_ || done_ < posted_.size(); });
            if (closing_) return;
            const Range bucket = posted_[done_];
            lock.unlock();
            std::exception_ptr error;
            try {
                wire_.reduce(*comm_, gradients_, bucket);
            } catch (...) {
                error = std::current_exception();
            }
            lock.lock();
            ++done_;
            if (error) error_ = error;
            if (done_ == posted_.size() || error_) idle_.notify_all();
        }
    }

    std::unique_ptr<Communicator> comm_;
    Wire& wire_;
    const Column& gradients_;
    std::mutex mutex_;
    std::condition_variable wake_, idle_;
    std::vector<Range> posted_;
    std::size_t done_ = 0;
    bool closing_ = false;
    std::exception_ptr error_;
    std::thread thread_;
};

class FastReducer final : public GradientReducer {
public:
    FastReducer(Communicator& data, Device& device, const ParameterTable& table, Arena& arena,
                const ReducerOptions& options)
        : data_(data),
          arena_(arena),
          my_lanes_(options.my_lanes),
          buckets_(make_buckets(table, options.bucket_bytes, options.wire != DType::f32)) {
        std::int64_t largest = 0;
        for (const Range bucket : buckets_) largest = std::max(largest, bucket.size());
        wire_ = options.wire == DType::f32 ? make_float_wire()
                                           : make_bf16_wire(device, table, data.size(), largest);
        if (options.overlap && data.size() > 1)
            thread_ = std::make_unique<BucketThread>(data, *wire_, arena.gradients);
    }

    Range lanes_of(int worker) const override { return worker == 0 ? my_lanes_ : Range{}; }
    void begin_step() override {
        next_ = 0;
        filled_ = false;
    }
    Target begin_lane(int, std::int64_t) override { return {&arena_.gradients, true}; }
    void end_lane(Ops&, int, std::int64_t, bool empty) override { filled_ = filled_ || !empty; }

    void finished_below(std::int64_t offset) override {
        while (thread_ && next_ < buckets_.size() && buckets_[next_].end <= offset) reduce(buckets_[next_++]);
    }
    void finish_step(Ops& ops) override {
        if (!filled_) ops.fill(arena_.gradients.whole(), 0);
        while (next_ < buckets_.size()) reduce(buckets_[next_++]);
        if (thread_) thread_->wait();
    }
    std::int64_t collectives() const override { return collectives_; }

private:
    void reduce(Range bucket) {
        if (data_.size() == 1) return;
        collectives_ += wire_->collectives();
        if (thread_)
            thread_->post(bucket);
        else
            wire_->reduce(data_, arena_.gradients, bucket);
    }

    Communicator& data_;
    Arena& arena_;
    Range my_lanes_;
    std::vector<Range> buckets_;
    std::unique_ptr<Wire> wire_;
    std::unique_ptr<BucketThread> thread_;
    std::size_t next_ = 0;
    bool filled_ = false;  ///< a lane with samples has left its gradients
    std::int64_t collectives_ = 0;
};

}  // namespace

std::unique_ptr<GradientReducer> make_fast_reducer(Communicator& data, Device& device,
                                                   const ParameterTable& table, Arena& arena,
                                                   const ReducerOptions& options) {
    return std::make_unique<FastReducer>(data, device, table, arena, options);
}

}  // namespace trireme
