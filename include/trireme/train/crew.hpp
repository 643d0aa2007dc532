// A few threads that do the same thing side by side, again and again, without being started anew.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace trireme {

class Crew {
public:
    /// `size` members; the first is the calling thread itself, so a crew of one starts no thread.
    explicit Crew(int size);
    ~Crew();
    Crew(const Crew&) = delete;
    Crew& operator=(const Crew&) = delete;

    /// Runs action(0) ... action(size - 1) side by side and waits for all. @throws the first error met.
    void run(const std::function<void(int)>& action);

private:
    void member(int number);
    void attempt(const std::function<void(int)>& action, int number);

    std::mutex mutex_;
    std::condition_variable wake_, done_;
    const std::function<void(int)>* action_ = nullptr;
    unsigned long round_ = 0;
    int busy_ = 0;
    bool closing_ = false;
    std::exception_ptr error_;
    std::vector<std::thread> threads_;
};

}  // namespace trireme
