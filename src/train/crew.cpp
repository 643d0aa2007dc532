#include "trireme/train/crew.hpp"

#include <string>
#include <utility>

#include "trireme/base/recorder.hpp"

namespace trireme {

Crew::Crew(int size) {
    for (int number = 1; number < size; ++number)
        threads_.emplace_back([this, number, recorder = Recorder::here()] {
            const Recorder::Member track(recorder, "worker " + std::to_string(number));
            member(number);
        });
}

Crew::~Crew() {
    {
        const std::lock_guard lock(mutex_);
        closing_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
}

void Crew::run(const std::function<void(int)>& action) {
    if (threads_.empty()) return action(0);
    {
        const std::lock_guard lock(mutex_);
        action_ = &action;
        busy_ = static_cast<int>(threads_.size());
        ++round_;
    }
    wake_.notify_all();
    attempt(action, 0);
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return busy_ == 0; });
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void Crew::attempt(const std::function<void(int)>& action, int number) {
    try {
        action(number);
    } catch (...) {
        const std::lock_guard lock(mutex_);
        if (!error_) error_ = std::current_exception();
    }
}

void Crew::member(int number) {
    std::unique_lock lock(mutex_);
    for (unsigned long seen = 0;;) {
        wake_.wait(lock, [&] { return closing_ || round_ != seen; });
        if (closing_) return;
        seen = round_;
        const std::function<void(int)>& action = *action_;
        lock.unlock();
        attempt(action, number);
        lock.lock();
        if (--busy_ == 0) done_.notify_one();
    }
}

}  // namespace trireme
