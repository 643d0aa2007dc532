#include "symbols.hpp"

#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <vector>

namespace trireme::cudaemu {
namespace {

std::string demangled(const char* mangled) {
    int status = 0;
    const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(mangled, nullptr, nullptr, &status),
                                                      std::free);
    return status == 0 ? text.get() : mangled;
}

template <class T>
T at(const std::vector<char>& file, std::uint64_t offset) {
    T value;
    std::memcpy(&value, file.data() + offset, sizeof value);
    return value;
}

// From the file's symbol table, which is not loaded.
std::string from_file(const char* path, std::uint64_t address, std::uint64_t base) {
    std::ifstream stream(path, std::ios::binary);
    const std::vector<char> file{std::istreambuf_iterator<char>(stream), {}};
    if (file.size() < sizeof(Elf64_Ehdr)) return "";
    const auto header = at<Elf64_Ehdr>(file, 0);
    const auto section = [&](std::uint64_t i) {
        return at<Elf64_Shdr>(file, header.e_shoff + i * header.e_shentsize);
    };
    if (header.e_type == ET_DYN) address -= base;
    for (std::uint64_t i = 0; i < header.e_shnum; ++i) {
        const auto table = section(i);
        if (table.sh_type != SHT_SYMTAB) continue;
        const auto names = section(table.sh_link).sh_offset;
        for (std::uint64_t offset = 0; offset < table.sh_size; offset += sizeof(Elf64_Sym)) {
            const auto symbol = at<Elf64_Sym>(file, table.sh_offset + offset);
            if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && symbol.st_value == address) {
                return demangled(file.data() + names + symbol.st_name);
            }
        }
    }
    return "";
}

}  // namespace

std::string symbol(const void* function) {
    Dl_info info{};
    if (dladdr(function, &info) == 0) return "";
    if (info.dli_sname != nullptr && info.dli_saddr == function) return demangled(info.dli_sname);
    return from_file(info.dli_fname, reinterpret_cast<std::uint64_t>(function),
                     reinterpret_cast<std::uint64_t>(info.dli_fbase));
}

}  // namespace trireme::cudaemu
