#include "support/catch.hpp"
#include "trireme/param/partition.hpp"

using namespace trireme;

namespace {

ParameterTable table_of(const std::vector<std::int64_t>& sizes) {
    ParameterTable table;
    for (const std::int64_t size : sizes)
        table.add({.name = "p" + std::to_string(table.count()), .shape = {size}, .decay = size > 4});
    table.lay_out();
    return table;
}

}  // namespace

TEST_CASE("buckets cover the arena, end between parameters and respect the limit", "[unit][param]") {
    const ParameterTable table = table_of({5, 1, 40, 3, 17, 100, 2});
    for (const std::int64_t bytes : {1L, 64L, 128L, 200L, 400L, 100000L}) {
        const std::vector<Range> buckets = make_buckets(table, bytes);
        std::int64_t at = 0;
        for (const Range bucket : buckets) {
            CHECK(bucket.begin == at);
            at = bucket.end;
            int inside = 0;
            for (const Parameter& p : table.all()) {
                const bool whole = intersect(p.place, bucket).size() == p.place.size();
                CHECK((whole || intersect(p.place, bucket).empty()));
                inside += whole ? 1 : 0;
            }
            CHECK((bucket.size() * 4 <= bytes || inside == 1));
        }
        CHECK(at == table.arena_size());
    }
    CHECK(make_buckets(table, 100000).size() == 1);
    CHECK(make_buckets(table, 1).size() == 7);
    CHECK(make_buckets(table_of({}), 100).empty());
}

TEST_CASE("parts of a range are even and cover it", "[unit][param]") {
    for (const std::int64_t n : {0L, 1L, 5L, 16L, 97L})
        for (const std::int64_t parts : {1L, 2L, 3L, 7L, 20L}) {
            std::int64_t at = 10;
            for (std::int64_t i = 0; i < parts; ++i) {
                const Range part = part_of({10, 10 + n}, parts, i);
                CHECK(part.begin == at);
                CHECK((part.size() == n / parts || part.size() == n / parts + 1));
                at = part.end;
            }
            CHECK(at == 10 + n);
        }
}
