#include "trireme/optim/scaler.hpp"

namespace trireme {

Scaler::Scaler(const ScalerOptions& options) : options_(options) {}
ScalerState Scaler::start() const {
    return {.scale = options_.enabled ? options_.init : 1};
}
ScalerState Scaler::resume(const ScalerState& saved, bool) const {
    return saved;
}
void Scaler::applied(ScalerState&) const {}
void Scaler::skipped(ScalerState&, const std::string&, std::int64_t) const {}

}  // namespace trireme
