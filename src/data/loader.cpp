#include "trireme/data/loader.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "data/preparation.hpp"
#include "data/sample_store.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"
#include "trireme/base/recorder.hpp"
#include "trireme/io/hdf5.hpp"
#include "trireme/tensor/device.hpp"

namespace trireme {
namespace {

/// Of inputs and targets, whether f32 or i32.
constexpr std::int64_t element_bytes = 4;
/// Sets up to this size are in memory before the first batch.
constexpr std::int64_t loaded_at_once = std::int64_t{8} << 20;

void expect(bool holds, const std::string& key, const std::string& expected, const std::string& found) {
    if (!holds) throw usage_error(key + ": expected " + expected + ", found " + found);
}

void check_token_options(const LoaderOptions& options) {
    expect(options.crop == 0 && !options.flip, "data.augment", "none for token data", "a crop or a flip");
    expect(options.normalization.identity(), "data.normalize", "none for token data", "a shift and a scale");
    expect(options.class_labels, "model.loss", "cross_entropy for token data", "another one");
}

void check_options(const DatasetLayout& layout, const LoaderOptions& options) {
    const EpochPlan& plan = options.plan;
    expect(options.prefetch >= 1, "data.prefetch", "at least 1", std::to_string(options.prefetch));
    expect(options.cache == "auto" || options.cache == "memory" || options.cache == "none", "data.cache",
           "auto, memory or none", "'" + options.cache + "'");
    expect(plan.batch >= 1, "train.batch", "at least 1", std::to_string(plan.batch));
    expect(plan.lanes >= 1, "train.lanes", "at least 1", std::to_string(plan.lanes));
    expect(plan.samples >= 0 && plan.samples <= layout.rows(), "samples of an epoch",
           "at most " + std::to_string(layout.rows()), std::to_string(plan.samples));
    const Range mine = intersect({0, plan.lanes}, options.my_lanes);
    expect(mine == options.my_lanes || options.my_lanes.empty(), "lanes of a rank",
           "lanes below " + std::to_string(plan.lanes), std::to_string(options.my_lanes.end));
    expect(options.crop >= 0, "data.augment crop", "at least 0", std::to_string(options.crop));
    if (layout.is_tokens()) return check_token_options(options);
    expect((options.crop == 0 && !options.flip) || layout.sample.rank() == 3, "data.augment",
           "images [channels, height, width]", "samples of " + layout.sample.text());
    const Normalization& norm = options.normalization;
    expect(norm.shift.size() == norm.scale.size() &&
               (norm.shift.size() <= 1 || static_cast<std::int64_t>(norm.shift.size()) == layout.sample[0]),
           "normalization", "one value or " + std::to_string(layout.sample[0]),
           std::to_string(norm.shift.size()));
    if (options.class_labels && layout.target.count() != 1)
        throw Error(Status::bad_data,
                    layout.shards.front().path + ":" + layout.y_name +
                        ": expected one class label for each sample, found " + layout.target.text(),
                    Scope::all_ranks);
}

bool hold_in_memory(const DatasetLayout& layout, const LoaderOptions& options) {
    if (options.cache == "none") return false;
    const std::int64_t bytes = SampleStore::bytes_of(layout);
    const std::int64_t share = available_memory() / std::max(options.ranks_on_node, 1);
    if (options.cache == "auto") return bytes <= share / 4;
    if (bytes > share)
        throw Error(Status::bad_usage, "data.cache=memory: expected room for " +
                                           bytes_text(static_cast<double>(bytes)) + ", found " +
                                           bytes_text(static_cast<double>(share)) + " for each rank");
    return true;
}

/// Batches of a lane that a loader keeps: one step more than is read ahead, the one that the caller holds.
std::int64_t slots_of(const LoaderOptions& options) {
    return (static_cast<std::int64_t>(options.prefetch) + 1) *
           std::max<std::int64_t>(options.my_lanes.size(), 1);
}

}  // namespace

std::int64_t loader_bytes(const DatasetLayout& layout, const LoaderOptions& options) {
    return slots_of(options) * options.plan.largest_lane() * (layout.sample.count() + layout.target.count()) *
           element_bytes;
}

/// The ring of slots between the thread that fills and the caller of next(). Slots are counted on for ever;
/// slot i of that count is i modulo the ring's size.
struct Loader::Impl {
    struct Slot {
        Buffer x, y;  ///< in host memory
        std::vector<std::int64_t> ids;
        LaneBatch batch;
        // Where batches are copied to a device:
        Buffer device_x{}, device_y{};
        std::unique_ptr<DeviceEvent> copied{}, used{};
    };

    Impl(const DatasetLayout& layout_, LoaderOptions options_, Device* device_);
    ~Impl() { stop(); }

    void stop();
    void produce(std::int64_t epoch, std::int64_t step) noexcept;
    void produce_step(const Order& order, std::int64_t epoch, std::int64_t step);
    Slot* wait_for_room();
    void give_back();
    const LaneBatch& take();
    void fill(Slot& slot, const Order& order, std::int64_t epoch, std::int64_t step, std::int64_t lane);
    void wait_until_copied(Slot& slot);
    void upload(Slot& slot) const;

    const DatasetLayout layout;
    const LoaderOptions options;
    SampleStore store;
    std::unique_ptr<Preparation> preparation;
    Device* const device;  ///< absent: batches stay where they are
    std::unique_ptr<Device> host;
    std::vector<Slot> ring;
    std::vector<LaneBatch> held;  ///< what next_step() has handed out

    std::mutex mutex;
    std::condition_variable filled_more, room;
    std::size_t filled = 0;    ///< slots filled so far
    std::size_t taken = 0;     ///< slots handed out so far
    std::size_t returned = 0;  ///< slots that the caller is done with
    bool stopping = false;
    std::exception_ptr error;
    std::thread thread;
};

Loader::Impl::Impl(const DatasetLayout& layout_, LoaderOptions options_, Device* device_)
    : layout(layout_),
      options((check_options(layout_, options_), std::move(options_))),
      store(layout, options.plan.largest_lane(), hold_in_memory(layout, options)),
      preparation(layout.is_tokens() ? prepare_windows(layout, options) : prepare_samples(layout, options)),
      device(device_ != nullptr && !device_->host_memory() ? device_ : nullptr),
      host(device != nullptr ? device->staging() : make_device("cpu")) {
    // HDF5's first call asks MPI a question, which the main thread must do.
    io::hdf5_version();
    const std::int64_t largest = options.plan.largest_lane();
    const auto bytes = [&](std::int64_t count) {
        return static_cast<std::size_t>(largest * count * element_bytes);
    };
    ring.resize(static_cast<std::size_t>(slots_of(options)));
    held.reserve(static_cast<std::size_t>(std::max<std::int64_t>(options.my_lanes.size(), 1)));
    for (Slot& slot : ring) {
        slot.x = Buffer(*host, bytes(layout.sample.count()));
        slot.y = Buffer(*host, bytes(layout.target.count()));
        slot.ids.reserve(static_cast<std::size_t>(largest));
        if (device == nullptr) continue;
        slot.device_x = Buffer(*device, slot.x.bytes());
        slot.device_y = Buffer(*device, slot.y.bytes());
        slot.copied = device->make_event();
        slot.used = device->make_event();
        slot.used->record();  // the memory is there, and zero, before anything is copied to it
    }
}

void Loader::Impl::stop() {
    {
        const std::lock_guard lock(mutex);
        stopping = true;
    }
    room.notify_all();
    if (thread.joinable()) thread.join();
}

namespace {
struct Stopped {};
}  // namespace

/// A slot to fill, once there is one. Meanwhile the rest of the set is brought into memory.
Loader::Impl::Slot* Loader::Impl::wait_for_room() {
    std::unique_lock lock(mutex);
    const auto ready = [&] { return stopping || filled - returned < ring.size(); };
    while (!ready()) {
        if (!store.pending()) {
            room.wait(lock, ready);
            break;
        }
        lock.unlock();
        store.load_piece();
        lock.lock();
    }
    if (stopping) throw Stopped{};
    return &ring[filled % ring.size()];
}

void Loader::Impl::produce(std::int64_t epoch, std::int64_t step) noexcept {
    try {
        while (store.pending() && SampleStore::bytes_of(layout) <= loaded_at_once) store.load_piece();
        for (;; ++epoch, step = 0) {
            const Order order(options.plan.samples, options.shuffle, options.seed, epoch, options.chunk);
            for (; step < options.plan.steps(); ++step) produce_step(order, epoch, step);
        }
    } catch (const Stopped&) {
    } catch (...) {
        const std::lock_guard lock(mutex);
        error = std::current_exception();
        filled_more.notify_one();
    }
}

void Loader::Impl::produce_step(const Order& order, std::int64_t epoch, std::int64_t step) {
    for (std::int64_t lane = options.my_lanes.begin; lane < options.my_lanes.end; ++lane) {
        Slot& slot = *wait_for_room();
        fill(slot, order, epoch, step, lane);
        const std::lock_guard lock(mutex);
        ++filled;
        filled_more.notify_one();
    }
    // Also where the caller is always faster, memory fills; once it is full, so is the ring.
    if (filled > ring.size() && store.pending()) store.load_piece();
}

void Loader::Impl::fill(Slot& slot, const Order& order, std::int64_t epoch, std::int64_t step,
                        std::int64_t lane) {
    const Span span(Activity::input, "preparing lane", lane);
    const Range batch = options.plan.step(step), positions = options.plan.lane(step, lane);
    slot.ids.clear();
    for (std::int64_t position = positions.begin; position < positions.end; ++position)
        slot.ids.push_back(order(position));

    if (device != nullptr) wait_until_copied(slot);
    const PreparedForm& form = preparation->form();
    const std::int64_t x_bytes = layout.sample.count() * element_bytes;
    const std::int64_t y_bytes = form.target.count() * element_bytes;
    store.each(slot.ids, [&](std::int64_t i, const std::byte* stored_x, const std::byte* stored_y) {
        const SamplePlace place{slot.ids[static_cast<std::size_t>(i)], epoch, positions.begin + i};
        preparation->prepare(place, stored_x, stored_y, slot.x.as<std::byte>() + i * x_bytes,
                             slot.y.as<std::byte>() + i * y_bytes);
    });

    const std::int64_t n = positions.size();
    slot.batch = {epoch,
                  step,
                  lane,
                  positions,
                  positions.begin - batch.begin,
                  batch.size(),
                  View{slot.x.data(), form.x, layout.sample.batched(n)},
                  View{slot.y.data(), form.y, form.target.batched(n)},
                  slot.ids};
    if (device != nullptr) upload(slot);
}

/// What the slot held before has to have left it.
void Loader::Impl::wait_until_copied(Slot& slot) {
    std::unique_lock lock(mutex);
    while (!slot.copied->reached()) {
        room.wait_for(lock, std::chrono::microseconds(50));
        if (stopping) throw Stopped{};
    }
}

/// By the thread that fills, on the stream of uploads: while earlier steps are computed.
void Loader::Impl::upload(Slot& slot) const {
    device->use(Stream::upload);
    slot.used->follow();
    const auto copy = [this](View& view, const Buffer& to) {
        device->upload(to.data(), view.data, view.bytes());
        view.data = to.data();
    };
    copy(slot.batch.x, slot.device_x);
    copy(slot.batch.y, slot.device_y);
    slot.copied->record();
}

Loader::Loader(const DatasetLayout& layout, LoaderOptions options, Device* device)
    : impl_(std::make_unique<Impl>(layout, std::move(options), device)) {}

Loader::~Loader() = default;

void Loader::start(std::int64_t epoch, std::int64_t step) {
    Impl& impl = *impl_;
    impl.stop();
    impl.stopping = false;
    impl.error = nullptr;
    impl.filled = impl.taken = impl.returned = 0;
    if (impl.device != nullptr)
        for (Impl::Slot& slot : impl.ring) slot.used->record();
    if (impl.options.my_lanes.empty() || impl.options.plan.steps() == 0) return;
    impl.thread = std::thread([&impl, epoch, step, recorder = Recorder::here()] {
        const Recorder::Member member(recorder, "loader");
        impl.produce(epoch, step);
    });
}

void Loader::Impl::give_back() {
    const std::lock_guard lock(mutex);
    if (device != nullptr)
        for (std::size_t slot = returned; slot < taken; ++slot) ring[slot % ring.size()].used->record();
    returned = taken;
    room.notify_one();
}

const LaneBatch& Loader::Impl::take() {
    std::unique_lock lock(mutex);
    const auto ready = [&] { return filled > taken || error; };
    if (!ready()) {
        const Span span(Activity::input, "waiting for data");
        filled_more.wait(lock, ready);
    }
    if (filled == taken) std::rethrow_exception(error);
    const Slot& slot = ring[taken++ % ring.size()];
    if (device != nullptr) slot.copied->follow();
    return slot.batch;
}

const LaneBatch& Loader::next() {
    if (!impl_->thread.joinable()) throw failure("no batch to load: no lane, no step, or not started");
    impl_->give_back();
    return impl_->take();
}

std::span<const LaneBatch> Loader::next_step() {
    Impl& impl = *impl_;
    impl.held.clear();
    if (impl.options.my_lanes.empty()) return {};
    if (!impl.thread.joinable()) throw failure("no batch to load: no step, or not started");
    impl.give_back();
    for (std::int64_t lane = 0; lane < impl.options.my_lanes.size(); ++lane) impl.held.push_back(impl.take());
    return impl.held;
}

bool Loader::cached() const {
    return impl_->store.complete();
}

}  // namespace trireme
