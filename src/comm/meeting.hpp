// Where the threads of one process wait for each other: nobody leaves before everybody has come, and what
// each has written before is seen by all after.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace trireme {

class Meeting {
public:
    explicit Meeting(int size) : size_(size) {}

    void wait() {
        if (size_ == 1) return;
        std::unique_lock lock(mutex_);
        const unsigned round = round_.load(std::memory_order_relaxed);
        if (++arrived_ == size_) {
            arrived_ = 0;
            round_.store(round + 1, std::memory_order_release);
            lock.unlock();
            everybody_here_.notify_all();
            return;
        }
        lock.unlock();
        for (int i = 0; i < patience; ++i) {
            if (round_.load(std::memory_order_acquire) != round) return;
            std::this_thread::yield();
        }
        lock.lock();
        everybody_here_.wait(lock, [&] { return round_.load(std::memory_order_relaxed) != round; });
    }

private:
    /// Offers of the core to others before the thread goes to sleep: waking up takes longer than most waits.
    static constexpr int patience = 100;

    const int size_;
    std::mutex mutex_;
    std::condition_variable everybody_here_;
    int arrived_ = 0;
    std::atomic<unsigned> round_{0};
};

}  // namespace trireme
