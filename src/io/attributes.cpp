// Attributes of objects, and texts as data sets of their own.
#include <algorithm>

#include "io/handles.hpp"

namespace trireme::io {
namespace {

std::string attribute_name(const File::Handle& file, const std::string& object, const std::string& name) {
    return file.path + ":" + object + " attribute " + name;
}

/// A text of exactly this length, or, with H5T_VARIABLE, of any.
Id text_type(std::size_t length) {
    Id type(H5Tcopy(H5T_C_S1), H5Tclose);
    H5Tset_size(type, length);
    H5Tset_cset(type, H5T_CSET_UTF8);
    if (length != H5T_VARIABLE) H5Tset_strpad(type, H5T_STR_NULLPAD);
    return type;
}

void write_attribute(const File::Handle& file, const std::string& object, const std::string& name,
                     hid_t stored_type, hid_t type, const void* value) {
    const Lock lock;
    const std::string place = attribute_name(file, object, name);
    const Id owner(
        check(H5Oopen(file.file, object.c_str(), H5P_DEFAULT), Status::failed, place, "no such object"),
        H5Oclose);
    if (H5Aexists(owner, name.c_str()) > 0) H5Adelete(owner, name.c_str());
    const Id space(H5Screate(H5S_SCALAR), H5Sclose);
    const Id attribute(H5Acreate2(owner, name.c_str(), stored_type, space, H5P_DEFAULT, H5P_DEFAULT),
                       H5Aclose);
    check(static_cast<hid_t>(attribute), Status::failed, place, "cannot be created");
    check(H5Awrite(attribute, type, value), Status::failed, place, "cannot be written");
}

/// Invalid where the object or the attribute is missing.
Id open_attribute(const File& file, const File::Handle& handle, const std::string& object,
                  const std::string& name) {
    if (!file.has(object)) return {};
    const Id owner(H5Oopen(handle.file, object.c_str(), H5P_DEFAULT), H5Oclose);
    if (owner < 0 || H5Aexists(owner, name.c_str()) <= 0) return {};
    return {H5Aopen(owner, name.c_str(), H5P_DEFAULT), H5Aclose};
}

template <class T>
std::optional<T> number_attribute(const File& file, const File::Handle& handle, const std::string& object,
                                  const std::string& name, DType type) {
    const Lock lock;
    const Id attribute = open_attribute(file, handle, object, name);
    if (attribute < 0) return std::nullopt;
    const std::string place = attribute_name(handle, object, name);
    const Id stored(H5Aget_type(attribute), H5Tclose);
    dtype_of_file_type(stored, place);
    const Id space(H5Aget_space(attribute), H5Sclose);
    if (H5Sget_simple_extent_npoints(space) != 1)
        fail(Status::bad_data, place, "expected one number, found several");
    T value{};
    check(H5Aread(attribute, memory_type(type), &value), Status::bad_data, place, "cannot be read");
    return value;
}

/// Reads a text of either kind; `read` takes the memory type and the address.
template <class Read>
std::string read_any_text(hid_t stored, hid_t space, const std::string& place, Read read) {
    if (H5Tget_class(stored) != H5T_STRING || H5Sget_simple_extent_npoints(space) != 1)
        fail(Status::bad_data, place, "expected one text, found something else");
    if (H5Tis_variable_str(stored) > 0) {
        char* characters = nullptr;
        check(read(stored, static_cast<void*>(&characters)), Status::bad_data, place, "cannot be read");
        std::string text = characters == nullptr ? "" : characters;
        H5free_memory(characters);
        return text;
    }
    std::string text(H5Tget_size(stored), '\0');
    check(read(stored, static_cast<void*>(text.data())), Status::bad_data, place, "cannot be read");
    if (H5Tget_strpad(stored) == H5T_STR_NULLTERM) {
        text.resize(text.find('\0') == std::string::npos ? text.size() : text.find('\0'));
    } else {
        const char padding = H5Tget_strpad(stored) == H5T_STR_SPACEPAD ? ' ' : '\0';
        text.resize(text.find_last_not_of(padding) + 1);
    }
    return text;
}

}  // namespace

void File::set_attribute(const std::string& object, const std::string& name, const std::string& value) {
    together([&] {
        const Lock lock;
        const Id type = text_type(H5T_VARIABLE);
        const char* characters = value.c_str();
        write_attribute(*handle_, object, name, type, type, &characters);
    });
}

void File::set_attribute(const std::string& object, const std::string& name, std::int64_t value) {
    together([&] {
        const Lock lock;
        write_attribute(*handle_, object, name, H5T_STD_I64LE, H5T_NATIVE_INT64, &value);
    });
}

void File::set_attribute(const std::string& object, const std::string& name, double value) {
    together([&] {
        const Lock lock;
        write_attribute(*handle_, object, name, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, &value);
    });
}

std::optional<std::string> File::text_attribute(const std::string& object, const std::string& name) const {
    const Lock lock;
    const Id attribute = open_attribute(*this, *handle_, object, name);
    if (attribute < 0) return std::nullopt;
    const Id stored(H5Aget_type(attribute), H5Tclose), space(H5Aget_space(attribute), H5Sclose);
    return read_any_text(stored, space, attribute_name(*handle_, object, name),
                         [&](hid_t type, void* to) { return H5Aread(attribute, type, to); });
}

std::optional<std::int64_t> File::int_attribute(const std::string& object, const std::string& name) const {
    return number_attribute<std::int64_t>(*this, *handle_, object, name, DType::i64);
}

std::optional<double> File::real_attribute(const std::string& object, const std::string& name) const {
    return number_attribute<double>(*this, *handle_, object, name, DType::f64);
}

void File::write_text(const std::string& dataset, const std::string& text) {
    together([&] {
        const Lock lock;
        const std::string place = handle_->path + ":" + dataset;
        const Id type = text_type(std::max<std::size_t>(text.size(), 1));
        const Id space(H5Screate(H5S_SCALAR), H5Sclose), links(H5Pcreate(H5P_LINK_CREATE), H5Pclose);
        H5Pset_create_intermediate_group(links, 1);
        const Id id(H5Dcreate2(handle_->file, dataset.c_str(), type, space, links, H5P_DEFAULT, H5P_DEFAULT),
                    H5Dclose);
        check(static_cast<hid_t>(id), Status::failed, place, "cannot be created");
        check(H5Dwrite(id, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, text.c_str()), Status::failed, place,
              "cannot be written");
    });
}

std::string File::read_text(const std::string& dataset) const {
    const Lock lock;
    const std::string place = handle_->path + ":" + dataset;
    if (!is_dataset(dataset)) fail(Status::bad_data, place, "expected a text, found none");
    const Id id(check(H5Dopen2(handle_->file, dataset.c_str(), H5P_DEFAULT), Status::bad_data, place,
                      "cannot be opened"),
                H5Dclose);
    const Id stored(H5Dget_type(id), H5Tclose), space(H5Dget_space(id), H5Sclose);
    return read_any_text(stored, space, place, [&](hid_t type, void* to) {
        return H5Dread(id, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, to);
    });
}

}  // namespace trireme::io
