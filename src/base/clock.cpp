#include "trireme/base/clock.hpp"

#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

namespace trireme {

double seconds_since_process_start() {
    // Field 22 of /proc/self/stat: ticks from boot to the start of this process. The name in field 2 may hold
    // blanks.
    std::ifstream stat("/proc/self/stat"), uptime("/proc/uptime");
    std::string line;
    double up = 0;
    if (!std::getline(stat, line) || !(uptime >> up)) return 0;
    std::istringstream fields(line.substr(line.rfind(')') + 1));
    std::string field;
    for (int i = 3; i <= 22; ++i) fields >> field;
    return up - static_cast<double>(std::stoll(field)) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace trireme
