#include "arena.hpp"

#include <sys/mman.h>

#include <cstdlib>

#include "options.hpp"
#include "sanitizer.hpp"

namespace trireme::cudaemu {
namespace {

constexpr std::size_t page = 4096;

std::size_t alignment() {
    return san::races() ? page : 512;
}
// Between two pieces, forbidden.
std::size_t gap() {
    return alignment();
}

std::size_t up(std::size_t n, std::size_t to) {
    return (n + to - 1) / to * to;
}

}  // namespace

// Address space only: twice the capacity, so that neither gaps nor fragments count against it.
Arena::Arena(std::size_t capacity) : capacity_(capacity), reserved_(up(2 * capacity + page, page)) {
    void* p = mmap(nullptr, reserved_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) std::abort();
    base_ = static_cast<std::byte*>(p);
}

std::byte* Arena::take(std::size_t bytes) {
    if (bytes > left()) return nullptr;
    std::size_t at = 0;
    for (const auto& [begin, size] : pieces_) {  // first fit
        if (begin - at >= bytes + gap()) break;
        at = up(begin + size + gap(), alignment());
    }
    const std::size_t end = up(at + bytes + gap(), page);
    if (end > reserved_) return nullptr;
    pieces_.emplace(at, bytes);
    taken_ += bytes;
    if (end > used_) {
        const bool accessible = depth_ > 0 || !options().guard;
        mprotect(base_ + used_, end - used_, accessible ? PROT_READ | PROT_WRITE : PROT_NONE);
        san::forbid(base_ + used_, end - used_);
        used_ = end;
    }
    san::allow(base_ + at, bytes);
    return base_ + at;
}

bool Arena::give(const void* p) {
    const auto piece = pieces_.find(offset(p));
    if (piece == pieces_.end()) return false;
    san::forbid(p, piece->second);
    if (san::races()) forget(piece->first, up(piece->second, page));
    taken_ -= piece->second;
    pieces_.erase(piece);
    return true;
}

bool Arena::holds(const void* p, std::size_t n) const {
    const std::size_t at = offset(p);
    auto piece = pieces_.upper_bound(at);
    if (at >= reserved_ || piece == pieces_.begin()) return false;
    --piece;
    return at + n <= piece->first + piece->second;
}

// What was done to the memory is no race with what its next owner does: new memory, in the same place.
void Arena::forget(std::size_t at, std::size_t bytes) {
    const int access = depth_ > 0 || !options().guard ? PROT_READ | PROT_WRITE : PROT_NONE;
    mmap(base_ + at, bytes, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

void Arena::open() {
    if (depth_++ == 0 && options().guard && used_ != 0) mprotect(base_, used_, PROT_READ | PROT_WRITE);
}

void Arena::close() {
    if (--depth_ == 0 && options().guard && used_ != 0) mprotect(base_, used_, PROT_NONE);
}

}  // namespace trireme::cudaemu
