#pragma once
// Whether a page of HTML is put together properly: every element closed, in order.

#include <cctype>
#include <string>
#include <vector>

namespace trireme::testing {

// The first fault, or nothing. Contents of script and style are not looked at.
inline std::string markup_fault(const std::string& html) {
    std::vector<std::string> open;
    for (std::size_t at = html.find('<'); at != std::string::npos; at = html.find('<', at)) {
        // To the '>' that is in no quotes.
        std::size_t end = at + 1;
        for (bool quoted = false; end < html.size() && (quoted || html[end] != '>'); ++end)
            if (html[end] == '"') quoted = !quoted;
        if (end == html.size()) return "no end of a tag: " + html.substr(at, 40);
        const std::string tag = html.substr(at + 1, end - at - 1);
        at = end + 1;
        if (tag.starts_with("!DOCTYPE")) continue;
        const bool closing = tag.starts_with("/");
        std::string name;
        for (std::size_t i = closing ? 1 : 0;
             i < tag.size() && std::isalnum(static_cast<unsigned char>(tag[i])) != 0; ++i)
            name += tag[i];
        if (name.empty()) return "a bare < before " + tag.substr(0, 40);
        if (closing) {
            if (open.empty() || open.back() != name)
                return "</" + name + "> closes " + (open.empty() ? "nothing" : open.back());
            open.pop_back();
        } else if (!tag.ends_with("/") && name != "meta" && name != "wbr") {
            open.push_back(name);
            if (name == "script" || name == "style") at = html.find("</" + name, at);
        }
    }
    return open.empty() ? "" : "<" + open.back() + "> is not closed";
}

}  // namespace trireme::testing
