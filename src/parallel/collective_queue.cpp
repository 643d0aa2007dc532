#include "trireme/parallel/collective_queue.hpp"

#include "trireme/base/recorder.hpp"

namespace trireme {
namespace {

/// Tasks that wait at the same time; whoever posts more waits.
constexpr std::size_t room = 1024;

}  // namespace

CollectiveQueue::CollectiveQueue(Communicator& comm, bool overlap) : comm_(comm) {
    if (!overlap || comm.size() == 1) return;
    own_ = comm.duplicate();
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

void CollectiveQueue::wait(Ticket ticket) {
    if (!overlaps()) return;
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
