// What a profiler is to NVTX: a library that NVTX_INJECTION64_PATH names. Writes the ranges of a process, a
// line each, to $NVTX_LISTENER_FILE.<process>.
#include <nvtx3/nvToolsExt.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

std::FILE* file() {
    static std::FILE* const opened = std::fopen(
        (std::string(std::getenv("NVTX_LISTENER_FILE")) + "." + std::to_string(getpid())).c_str(), "w");
    return opened;
}

int push(const char* what) {
    std::fprintf(file(), "+%s\n", what);
    return 0;
}

int pop() {
    std::fputs("-\n", file());
    return 0;
}

}  // namespace

extern "C" int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) {
    const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
    NvtxFunctionTable table = nullptr;
    unsigned size = 0;
    if (callbacks == nullptr || callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size) == 0)
        return 0;
    *table[NVTX_CBID_CORE_RangePushA] = reinterpret_cast<NvtxFunctionPointer>(push);
    *table[NVTX_CBID_CORE_RangePop] = reinterpret_cast<NvtxFunctionPointer>(pop);
    return 1;
}
