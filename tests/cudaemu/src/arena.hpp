// A device's memory: an address range that the host can reach only while an Access to it lives.
#pragma once

#include <cstddef>
#include <map>

namespace trireme::cudaemu {

class Arena {
public:
    explicit Arena(std::size_t capacity);

    std::byte* take(std::size_t bytes);  // null when there is not enough left
    bool give(const void*);              // false for what is no piece
    // Whether all n bytes lie in one piece; none at all may lie at its end.
    bool holds(const void*, std::size_t n) const;
    std::size_t left() const { return capacity_ - taken_; }
    std::size_t capacity() const { return capacity_; }

    void open();
    void close();

private:
    void forget(std::size_t at, std::size_t bytes);
    std::size_t offset(const void* p) const {
        return static_cast<std::size_t>(static_cast<const std::byte*>(p) - base_);
    }

    std::byte* base_ = nullptr;
    std::size_t capacity_, reserved_;
    std::size_t taken_ = 0;  // by pieces
    std::size_t used_ = 0;   // from the base on, made accessible at least once
    int depth_ = 0;
    std::map<std::size_t, std::size_t> pieces_;  // size by offset
};

}  // namespace trireme::cudaemu
