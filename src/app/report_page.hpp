// The page of `trireme report`: one HTML file that needs nothing else.
#pragma once

#include <string>
#include <vector>

#include "app/run_record.hpp"

namespace trireme::app {

/// Legend, best values, curves, shares of time, and what the configurations have in difference (of a single
/// run: from the defaults).
std::string report_html(const std::vector<RunRecord>& runs);

/// Style and script, in the page as they are.
extern const char* const report_style;
extern const char* const report_script;

}  // namespace trireme::app
