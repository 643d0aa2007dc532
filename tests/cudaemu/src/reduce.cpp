#include "reduce.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

namespace trireme::cudaemu {
namespace {

// Calls f with a null pointer to the C++ type.
template <class F>
bool with_type(ncclDataType_t type, F f) {
    switch (type) {
        case ncclInt8:
            return f(static_cast<std::int8_t*>(nullptr)), true;
        case ncclUint8:
            return f(static_cast<std::uint8_t*>(nullptr)), true;
        case ncclInt32:
            return f(static_cast<std::int32_t*>(nullptr)), true;
        case ncclUint32:
            return f(static_cast<std::uint32_t*>(nullptr)), true;
        case ncclInt64:
            return f(static_cast<std::int64_t*>(nullptr)), true;
        case ncclUint64:
            return f(static_cast<std::uint64_t*>(nullptr)), true;
        case ncclFloat16:
            return f(static_cast<__half*>(nullptr)), true;
        case ncclFloat32:
            return f(static_cast<float*>(nullptr)), true;
        case ncclFloat64:
            return f(static_cast<double*>(nullptr)), true;
        case ncclBfloat16:
            return f(static_cast<__nv_bfloat16*>(nullptr)), true;
        default:
            return false;
    }
}

// Narrow types are computed with in these.
template <class T>
using Wide = std::conditional_t<std::is_arithmetic_v<T>, T, float>;

template <class W>
W combine(W a, W b, ncclRedOp_t op) {
    switch (op) {
        case ncclProd:
            return static_cast<W>(a * b);
        case ncclMax:
            return std::max(a, b);
        case ncclMin:
            return std::min(a, b);
        default:
            return static_cast<W>(a + b);
    }
}

}  // namespace

std::size_t width(ncclDataType_t type) {
    std::size_t bytes = 0;
    with_type(type, [&]<class T>(T*) { bytes = sizeof(T); });
    return bytes;
}

const char* name_of(ncclDataType_t type) {
    switch (type) {
        case ncclInt8:
            return "int8";
        case ncclUint8:
            return "uint8";
        case ncclInt32:
            return "int32";
        case ncclUint32:
            return "uint32";
        case ncclInt64:
            return "int64";
        case ncclUint64:
            return "uint64";
        case ncclFloat16:
            return "float16";
        case ncclFloat32:
            return "float32";
        case ncclFloat64:
            return "float64";
        case ncclBfloat16:
            return "bfloat16";
        default:
            return "unknown";
    }
}

const char* name_of(ncclRedOp_t op) {
    switch (op) {
        case ncclSum:
            return "sum";
        case ncclProd:
            return "product";
        case ncclMax:
            return "max";
        case ncclMin:
            return "min";
        case ncclAvg:
            return "average";
        default:
            return "unknown";
    }
}

bool known(ncclRedOp_t op) {
    return op >= ncclSum && op <= ncclAvg;
}

void reduce(void* into, const void* from, std::size_t count, ncclDataType_t type, ncclRedOp_t op) {
    with_type(type, [&]<class T>(T*) {
        auto* to = static_cast<T*>(into);
        const auto* with = static_cast<const T*>(from);
        for (std::size_t i = 0; i < count; ++i) {
            to[i] = T(combine(static_cast<Wide<T>>(to[i]), static_cast<Wide<T>>(with[i]), op));
        }
    });
}

void divide(void* values, std::size_t count, ncclDataType_t type, int by) {
    with_type(type, [&]<class T>(T*) {
        auto* v = static_cast<T*>(values);
        for (std::size_t i = 0; i < count; ++i) {
            v[i] = T(static_cast<Wide<T>>(static_cast<Wide<T>>(v[i]) / static_cast<Wide<T>>(by)));
        }
    });
}

}  // namespace trireme::cudaemu
