#include "io/library.hpp"

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

#include "trireme/io/hdf5.hpp"

namespace trireme::io {
namespace {

/// A recursive lock that is given in the order of asking.
class Turns {
public:
    void take() {
        std::unique_lock lock(mutex_);
        const std::thread::id me = std::this_thread::get_id();
        if (owner_ != me) {
            const std::uint64_t turn = taken_++;
            given_.wait(lock, [&] { return ended_ == turn; });
            owner_ = me;
        }
        ++depth_;
    }
    void give() noexcept {
        const std::lock_guard lock(mutex_);
        if (--depth_ > 0) return;
        owner_ = {};
        ++ended_;
        given_.notify_all();
    }

private:
    std::mutex mutex_;
    std::condition_variable given_;
    std::thread::id owner_;
    std::uint64_t taken_ = 0, ended_ = 0;
    int depth_ = 0;
};

Turns& turns() {
    static Turns turns;
    return turns;
}

void initialize_once() {
    static const bool done = [] {
        if (H5open() < 0) throw failure("the HDF5 library could not be initialized");
        H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
        return true;
    }();
    static_cast<void>(done);
}

/// A real type of two bytes with these widths of exponent and mantissa. Kept for the life of the process.
hid_t two_byte_real(std::size_t exponent_bits, std::size_t mantissa_bits) {
    const hid_t type = H5Tcopy(H5T_IEEE_F32LE);
    const std::size_t bias = (std::size_t{1} << (exponent_bits - 1)) - 1;
    if (type < 0 || H5Tset_fields(type, 15, mantissa_bits, exponent_bits, 0, mantissa_bits) < 0 ||
        H5Tset_size(type, 2) < 0 || H5Tset_ebias(type, bias) < 0)
        throw failure("HDF5 could not make a 16-bit real type: " + hdf5_reason());
    return type;
}

hid_t f16_type() {
    static const hid_t type = two_byte_real(5, 10);
    return type;
}
hid_t bf16_type() {
    static const hid_t type = two_byte_real(8, 7);
    return type;
}

DType integer_of(std::size_t bytes, bool has_sign) {
    if (bytes <= 1) return has_sign ? DType::i8 : DType::u8;
    if (bytes <= 2) return has_sign ? DType::i16 : DType::u16;
    if (bytes <= 4) return has_sign ? DType::i32 : DType::u32;
    return has_sign ? DType::i64 : DType::u64;
}

DType real_of(hid_t type) {
    const std::size_t bytes = H5Tget_size(type);
    if (bytes > 4) return DType::f64;
    if (bytes > 2) return DType::f32;
    std::size_t sign = 0, exponent = 0, exponent_bits = 0, mantissa = 0, mantissa_bits = 0;
    H5Tget_fields(type, &sign, &exponent, &exponent_bits, &mantissa, &mantissa_bits);
    return exponent_bits == 8 ? DType::bf16 : DType::f16;
}

std::string class_name(H5T_class_t type_class) {
    switch (type_class) {
        case H5T_STRING:
            return "strings";
        case H5T_COMPOUND:
            return "compound values";
        case H5T_VLEN:
            return "lists of varying length";
        case H5T_ARRAY:
            return "arrays as elements";
        case H5T_REFERENCE:
            return "references";
        case H5T_OPAQUE:
            return "opaque bytes";
        case H5T_BITFIELD:
            return "bit fields";
        case H5T_TIME:
            return "times";
        default:
            return "elements of an unknown type";
    }
}

herr_t take_first(unsigned, const H5E_error2_t* entry, void* text) {
    auto& reason = *static_cast<std::string*>(text);
    if (reason.empty() && entry->desc != nullptr) reason = entry->desc;
    return 0;
}

}  // namespace

Lock::Lock() {
    initialize_once();
    turns().take();
}

Lock::~Lock() {
    turns().give();
}

std::string hdf5_reason() {
    std::string reason;
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_first, &reason);
    // Of "unable to open file: name = ..., errno = 2, error message = 'No such file ...', flags = ..." the
    // middle.
    constexpr std::string_view mark = "error message = '";
    if (const auto at = reason.find(mark); at != std::string::npos) {
        const auto begin = at + mark.size();
        reason = reason.substr(begin, reason.find('\'', begin) - begin);
    }
    return reason.empty() ? "unknown reason" : reason;
}

void fail(Status status, const std::string& object, const std::string& what) {
    throw Error(status, object + ": " + what);
}

bool Id::close() noexcept {
    if (id_ < 0) return true;
    try {
        const Lock lock;
        return close_(std::exchange(id_, H5I_INVALID_HID)) >= 0;
    } catch (...) {
        return false;
    }
}

hid_t memory_type(DType type) {
    switch (type) {
        case DType::f32:
            return H5T_NATIVE_FLOAT;
        case DType::f64:
            return H5T_NATIVE_DOUBLE;
        case DType::f16:
            return f16_type();
        case DType::bf16:
            return bf16_type();
        case DType::i8:
            return H5T_NATIVE_INT8;
        case DType::u8:
            return H5T_NATIVE_UINT8;
        case DType::i16:
            return H5T_NATIVE_INT16;
        case DType::u16:
            return H5T_NATIVE_UINT16;
        case DType::i32:
            return H5T_NATIVE_INT32;
        case DType::u32:
            return H5T_NATIVE_UINT32;
        case DType::i64:
            return H5T_NATIVE_INT64;
        case DType::u64:
            return H5T_NATIVE_UINT64;
    }
    throw failure("an element type that HDF5 cannot hold");
}

hid_t file_type(DType type) {
    switch (type) {
        case DType::f32:
            return H5T_IEEE_F32LE;
        case DType::f64:
            return H5T_IEEE_F64LE;
        case DType::f16:
            return f16_type();
        case DType::bf16:
            return bf16_type();
        case DType::i8:
            return H5T_STD_I8LE;
        case DType::u8:
            return H5T_STD_U8LE;
        case DType::i16:
            return H5T_STD_I16LE;
        case DType::u16:
            return H5T_STD_U16LE;
        case DType::i32:
            return H5T_STD_I32LE;
        case DType::u32:
            return H5T_STD_U32LE;
        case DType::i64:
            return H5T_STD_I64LE;
        case DType::u64:
            return H5T_STD_U64LE;
    }
    throw failure("an element type that HDF5 cannot hold");
}

DType dtype_of_file_type(hid_t type, const std::string& object) {
    switch (const H5T_class_t type_class = H5Tget_class(type)) {
        case H5T_INTEGER:
            return integer_of(H5Tget_size(type), H5Tget_sign(type) != H5T_SGN_NONE);
        case H5T_FLOAT:
            return real_of(type);
        case H5T_ENUM: {  // h5py's booleans
            const Id base(check(H5Tget_super(type), Status::bad_data, object, "its type cannot be read"),
                          H5Tclose);
            // Enumerations of one byte are small and not negative in practice; wider ones keep their sign.
            const std::size_t bytes = H5Tget_size(base);
            return bytes == 1 ? DType::u8 : integer_of(bytes, H5Tget_sign(base) != H5T_SGN_NONE);
        }
        default:
            fail(Status::bad_data, object, "expected numbers, found " + class_name(type_class));
    }
}

std::string hdf5_version() {
    const Lock lock;
    unsigned major = 0, minor = 0, release = 0;
    H5get_libversion(&major, &minor, &release);
    std::string text = std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(release);
#ifdef H5_HAVE_PARALLEL
    text += " (parallel)";
#endif
    return text;
}

}  // namespace trireme::io
