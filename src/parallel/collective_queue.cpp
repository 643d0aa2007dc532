#include "trireme/parallel/collective_queue.hpp"

#include "trireme/base/recorder.hpp"

namespace trireme {
namespace {

/// Tasks that wait at the same time; whoever posts more waits.
constexpr std::size_t room = 1024;
constexpr std::size_t events = 64;

}  // namespace

CollectiveQueue::CollectiveQueue(Communicator& comm, Device& device, bool overlap)
    : comm_(comm), device_(device) {
    if (!overlap || comm.size() == 1) return;
    own_ = comm.duplicate();
    if (device.has_streams()) {
        begin_ = device.make_event();
        for (std::size_t i = 0; i < events; ++i) ends_.push_back(device.make_event());
        return;
    }
    tasks_.resize(room);
    thread_ = std::thread([this, recorder = Recorder::here()] {
        const Recorder::Member member(recorder, Recorder::communicator);
        serve();
    });
}

CollectiveQueue::~CollectiveQueue() {
    if (!thread_.joinable()) return;
    {
        const std::lock_guard lock(mutex_);
        closing_ = true;
    }
    wake_.notify_all();
    thread_.join();
}

CollectiveQueue::Ticket CollectiveQueue::post(CollectiveWork& work, int which) {
    if (!overlaps()) {
        work.run(comm_, which);
        done_ = ++posted_;
    } else if (begin_) {
        run_on_stream({&work, which});
        done_ = ++posted_;
    } else {
        wait(posted_ - static_cast<Ticket>(tasks_.size()));
        {
            const std::lock_guard lock(mutex_);
            tasks_[static_cast<std::size_t>(posted_++) % tasks_.size()] = {&work, which};
        }
        wake_.notify_all();
    }
    return posted_ - 1;
}

void CollectiveQueue::run_on_stream(const Task& task) {
    const OnStream beside(device_, Stream::communication, *begin_);
    task.work->run(*own_, task.which);
    ends_[static_cast<std::size_t>(posted_) % ends_.size()]->record();
}

void CollectiveQueue::wait(Ticket ticket) {
    if (!overlaps()) return;
    if (begin_) {
        if (ticket <= followed_) return;
        ends_[static_cast<std::size_t>(ticket) % ends_.size()]->follow();
        followed_ = ticket;
        return;
    }
    std::unique_lock lock(mutex_);
    if (done_ <= ticket && !error_) {
        const Span span(Activity::waiting, "waiting for the communication thread");
        progress_.wait(lock, [&] { return done_ > ticket || error_; });
    }
    if (error_) std::rethrow_exception(error_);
}

void CollectiveQueue::serve() {
    std::unique_lock lock(mutex_);
    while (true) {
        wake_.wait(lock, [this] { return closing_ || done_ < posted_; });
        if (closing_) return;
        const Task task = tasks_[static_cast<std::size_t>(done_) % tasks_.size()];
        lock.unlock();
        std::exception_ptr error;
        try {
            task.work->run(*own_, task.which);
        } catch (...) {
            error = std::current_exception();
        }
        lock.lock();
        ++done_;
        if (error) error_ = error;
        progress_.notify_all();
    }
}

}  // namespace trireme
