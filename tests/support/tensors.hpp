#pragma once
// Device tensors for tests of operations: reproducible values in, values out, and guard bytes on both sides
// that no verb may touch.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "trireme/base/philox.hpp"
#include "trireme/ops/ops.hpp"
#include "trireme/tensor/device.hpp"
#include "trireme/tensor/view.hpp"

namespace trireme::testing {

using Values = std::vector<double>;

/// n reals in [low, high), each exactly a float, so that oracle and verb see the same numbers.
inline Values random_values(std::int64_t n, std::uint64_t seed, double low = -1, double high = 1) {
    const RandomStream stream(seed, Purpose::augment, 7);
    Values values(static_cast<std::size_t>(n));
    for (std::size_t i = 0; i < values.size(); ++i)
        values[i] =
            static_cast<float>(low + (high - low) * static_cast<double>(unit_interval(stream.word(i))));
    return values;
}

/// n integers in [0, bound).
inline std::vector<std::int32_t> random_labels(std::int64_t n, std::int32_t bound, std::uint64_t seed) {
    const RandomStream stream(seed, Purpose::augment, 8);
    std::vector<std::int32_t> labels(static_cast<std::size_t>(n));
    for (std::size_t i = 0; i < labels.size(); ++i)
        labels[i] = static_cast<std::int32_t>(stream.word(i) % static_cast<std::uint32_t>(bound));
    return labels;
}

/// A tensor of T on a device between two guards.
template <class T>
class Guarded {
public:
    Guarded(Device& device, Shape shape, const std::vector<T>& values) : device_(&device), shape_(shape) {
        std::vector<unsigned char> image(bytes() + 2 * guard, pattern);
        if (bytes() > 0) std::memcpy(image.data() + guard, values.data(), bytes());
        buffer_ = Buffer(device, image.size());
        device.copy_from_host(buffer_.data(), image.data(), image.size());
    }
    /// Checks the guards: whatever test uses the tensor, a stray write fails it.
    ~Guarded() {
        if (buffer_.data() == nullptr) return;
        const std::vector<unsigned char> image = fetch();
        bool intact = true;
        for (std::size_t i = 0; i < guard; ++i)
            intact = intact && image[i] == pattern && image[guard + bytes() + i] == pattern;
        CHECK(intact);
    }
    Guarded(Guarded&&) noexcept = default;
    Guarded& operator=(Guarded&&) = delete;

    View view() const { return {buffer_.as<unsigned char>() + guard, dtype_of<T>, shape_}; }
    operator View() const { return view(); }

    std::vector<T> values() const {
        const std::vector<unsigned char> image = fetch();
        std::vector<T> result(static_cast<std::size_t>(shape_.count()));
        if (bytes() > 0) std::memcpy(result.data(), image.data() + guard, bytes());
        return result;
    }

private:
    static constexpr std::size_t guard = 64;
    static constexpr unsigned char pattern = 0xA5;

    std::size_t bytes() const { return static_cast<std::size_t>(shape_.count()) * sizeof(T); }
    std::vector<unsigned char> fetch() const {
        std::vector<unsigned char> image(bytes() + 2 * guard);
        device_->synchronize();
        device_->copy_to_host(image.data(), buffer_.data(), image.size());
        return image;
    }

    Device* device_;
    Shape shape_;
    Buffer buffer_;
};

using Tensor = Guarded<float>;
using Indices = Guarded<std::int32_t>;

/// x as the nearest value of a real type, ties to even. Written with the type's definition, not with the
/// product's conversion.
inline double rounded(DType type, double x) {
    if (type == DType::f32) return static_cast<float>(x);
    if (type == DType::f64 || x == 0 || !std::isfinite(x)) return x;
    const int digits = type == DType::bf16 ? 8 : 11, least = type == DType::bf16 ? -126 : -14;
    int exponent = 0;
    std::frexp(x, &exponent);  // |x| in [2^(exponent-1), 2^exponent)
    const int unit = std::max(exponent - 1, least) - (digits - 1);
    const double value = std::ldexp(std::nearbyint(std::ldexp(x, -unit)), unit);
    const double most = type == DType::bf16 ? std::ldexp(255, 120) : 65504;
    return std::fabs(value) > most ? std::copysign(INFINITY, x) : value;
}

inline Values rounded(DType type, Values values) {
    for (double& value : values) value = rounded(type, value);
    return values;
}

/// The bits of a value that a 16-bit type holds exactly, and back.
inline std::uint16_t bits_of(DType type, double value) {
    const auto wide = std::bit_cast<std::uint32_t>(static_cast<float>(value));
    if (type == DType::bf16) return static_cast<std::uint16_t>(wide >> 16);
    const auto sign = static_cast<std::uint16_t>((wide >> 16) & 0x8000U);
    const double magnitude = std::fabs(value);
    if (std::isnan(value)) return 0x7E00;
    if (std::isinf(value)) return sign | 0x7C00;
    if (magnitude < std::ldexp(1, -14))
        return static_cast<std::uint16_t>(sign | static_cast<std::uint16_t>(std::ldexp(magnitude, 24)));
    int exponent = 0;
    const double fraction = std::frexp(magnitude, &exponent);  // in [0.5, 1)
    return static_cast<std::uint16_t>(sign | ((exponent + 14) << 10) |
                                      static_cast<int>(std::ldexp(2 * fraction - 1, 10)));
}

inline double value_of(DType type, std::uint16_t bits) {
    if (type == DType::bf16) return std::bit_cast<float>(std::uint32_t{bits} << 16);
    const int exponent = (bits >> 10) & 31, fraction = bits & 1023;
    const double magnitude = exponent == 31  ? (fraction != 0 ? NAN : INFINITY)
                             : exponent == 0 ? std::ldexp(fraction, -24)
                                             : std::ldexp(1024 + fraction, exponent - 25);
    return (bits & 0x8000U) != 0 ? -magnitude : magnitude;
}

/// A tensor of float32, bfloat16 or float16; values are rounded to the type on the way in.
class Real {
public:
    Real(Device& device, DType type, Shape shape, const Values& values) : type_(type) {
        if (type == DType::f32) {
            wide_.emplace(device, shape, std::vector<float>(values.begin(), values.end()));
            return;
        }
        std::vector<std::uint16_t> bits;
        for (const double value : values) bits.push_back(bits_of(type, rounded(type, value)));
        narrow_.emplace(device, shape, bits);
    }
    View view() const {
        if (wide_) return wide_->view();
        const View bits = narrow_->view();
        return {bits.data, type_, bits.shape};
    }
    operator View() const { return view(); }
    Values values() const {
        Values result;
        if (wide_)
            for (const float value : wide_->values()) result.push_back(static_cast<double>(value));
        else
            for (const std::uint16_t bits : narrow_->values()) result.push_back(value_of(type_, bits));
        return result;
    }
    DType type() const { return type_; }

private:
    DType type_;
    std::optional<Guarded<float>> wide_;
    std::optional<Guarded<std::uint16_t>> narrow_;
};

/// A device with its verbs.
struct Machine {
    explicit Machine(const std::string& kind, int threads = 1)
        : device(make_device(kind)), ops(make_ops(*device, threads)) {}

    Tensor tensor(Shape shape, const Values& values) const {
        return Tensor(*device, shape, std::vector<float>(values.begin(), values.end()));
    }
    /// An output: holds a value that no verb produces, so that a missing write shows.
    Tensor output(Shape shape) const {
        return Tensor(*device, shape, std::vector<float>(static_cast<std::size_t>(shape.count()), 12345.0F));
    }
    /// As the two above, of any real type.
    Real real(DType type, Shape shape, const Values& values) const { return {*device, type, shape, values}; }
    Real real_output(DType type, Shape shape) const {
        return real(type, shape, Values(static_cast<std::size_t>(shape.count()), 12345.0));
    }
    Indices indices(Shape shape, const std::vector<std::int32_t>& values) const {
        return {*device, shape, values};
    }

    std::unique_ptr<Device> device;
    std::unique_ptr<Ops> ops;
};

/// One double in device memory.
class Cell {
public:
    explicit Cell(Device& device, double value = 0) : device_(&device), buffer_(device, sizeof value) {
        device.copy_from_host(buffer_.data(), &value, sizeof value);
    }
    double* get() const { return buffer_.as<double>(); }
    double value() const {
        double result = 0;
        device_->synchronize();
        device_->copy_to_host(&result, buffer_.data(), sizeof result);
        return result;
    }

private:
    Device* device_;
    Buffer buffer_;
};

/// |got - want| <= relative·|want| + absolute everywhere; reports the worst element.
template <class T>
void require_close(const std::vector<T>& got, const Values& want, double relative, double absolute) {
    REQUIRE(got.size() == want.size());
    std::size_t worst = 0;
    double excess = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
        const double error = std::fabs(static_cast<double>(got[i]) - want[i]);
        const double ratio = error / (relative * std::fabs(want[i]) + absolute);
        if (ratio > excess || std::isnan(ratio)) {
            excess = std::isnan(ratio) ? INFINITY : ratio;
            worst = i;
        }
    }
    if (got.empty()) return;
    INFO("worst element " << worst << " of " << got.size() << ": got " << got[worst] << ", want "
                          << want[worst]);
    REQUIRE(excess <= 1);
}

/// As above for a tensor of any real type: what `want` rounds to, within one more rounding step of a 16-bit
/// type (the float32 arithmetic before it may fall on the other side of a tie).
inline void require_close(const Real& got, const Values& want, double relative = 2e-5,
                          double absolute = 2e-5) {
    const double step = got.type() == DType::bf16 ? 1.0 / 128 : got.type() == DType::f16 ? 1.0 / 1024 : 0;
    require_close(got.values(), rounded(got.type(), want), relative + step, absolute);
}

inline void require_close(const Tensor& got, const Values& want, double relative = 2e-5,
                          double absolute = 2e-5) {
    require_close(got.values(), want, relative, absolute);
}

}  // namespace trireme::testing
