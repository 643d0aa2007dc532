// An installed copy works wherever it is moved to, and what describes other ways to install names what is
// there.
#include <cstdlib>

#include "support/catch.hpp"
#include "support/runs.hpp"

using namespace trireme;
using namespace trireme::testing;
namespace fs = std::filesystem;

TEST_CASE("an installed copy runs from another folder", "[cli-install]") {
    const fs::path build = trireme_exe().parent_path();
    if (!fs::exists(build / "cmake_install.cmake") || run({"cmake", "--version"}).status != 0) {
        WARN("skipped: " + build.string() + " is no build folder, or there is no cmake");
        return;
    }
    const TempDir folder;
    const Result installed =
        run({"cmake", "--install", build.string(), "--prefix", (folder / "first").string()});
    INFO(installed.out << installed.err);
    REQUIRE(installed.status == 0);
    const fs::path place = folder / "moved elsewhere";
    fs::rename(folder / "first", place);
    for (const char* part : {"bin/trireme", "lib", "share/trireme/LICENSE", "share/trireme/README.md",
                             "share/trireme/doc/layers.md", "share/trireme/jobs/digits.ini",
                             "share/trireme/tools/mpirun", "share/trireme/tools/read_checkpoint.py"}) {
        INFO(part);
        CHECK(fs::exists(place / part));
    }
    for (const auto& entry : fs::directory_iterator(place / "share/trireme/jobs"))
        if (entry.path().extension() == ".sh")
            CHECK((entry.status().permissions() & fs::perms::owner_exec) != fs::perms::none);
    CHECK(fs::exists(place / "lib/libtrireme_cuda.so") == (std::getenv("TRIREME_BUILT_PLUGIN") != nullptr));
    CHECK(read_file(place / "bin/trireme").find(build.string()) == std::string::npos);

    const fs::path program = place / "bin/trireme";
    const Options elsewhere{.timeout = 60, .env = {}, .cwd = folder.path()};
    const Result version = run({program.string(), "--version"}, elsewhere);
    CHECK(version.status == 0);
    CHECK(version.out == trireme::testing::trireme(0, {"--version"}).out);

    write_samples(folder / "data.h5", clusters(24, Shape{4}, 3));
    const Result trained =
        run({(place / "share/trireme/tools/mpirun").string(), "-n", "2", program.string(), "train",
             "--data.train=data.h5", "--train.max_steps=3", "--train.batch=8", "--run.dir=run"},
            elsewhere);
    INFO(trained.out << trained.err);
    REQUIRE(trained.status == 0);
    CHECK(Run(folder / "run", {}).last().position.at("updates") == 3);
}

TEST_CASE("the Spack recipe passes on options that there are", "[cli-install]") {
    if (run({"python3", "--version"}).status != 0) {
        WARN("skipped: there is no python3");
        return;
    }
    // Spack itself is not here: its words are replaced by some that note what they are given.
    const std::string script =
        "import sys, types\n"
        "class CMakePackage:\n"
        "    run_tests = True\n"
        "    spec = types.SimpleNamespace(satisfies=lambda what: False)\n"
        "    def define(self, name, value): return '-D%s=%s' % (name, value)\n"
        "names, noted = ('license', 'version', 'variant', 'depends_on', 'conflicts'), []\n"
        "words = {n: lambda *a, n=n, **k: noted.append((n,) + a) for n in names}\n"
        "module = types.ModuleType('spack.package')\n"
        "module.__dict__.update(words, CMakePackage=CMakePackage, __all__=[*words, 'CMakePackage'])\n"
        "sys.modules.update({'spack': types.ModuleType('spack'), 'spack.package': module})\n"
        "scope = {}\n"
        "exec(open(sys.argv[1]).read(), scope)\n"
        "print(*scope['Trireme']().cmake_args(), sep='\\n')\n"
        "print(*(' '.join(note) for note in noted), sep='\\n')\n";
    const Result result = run({"python3", "-c", script, (source_dir() / "tools/spack/package.py").string()});
    INFO(result.err);
    REQUIRE(result.status == 0);
    const std::string cmake = read_file(source_dir() / "CMakeLists.txt");
    std::istringstream lines(result.out);
    int options = 0;
    for (std::string line; std::getline(lines, line) && line.starts_with("-D"); ++options) {
        const std::string name = line.substr(2, line.find('=') - 2);
        INFO(name);
        CHECK((cmake.find("set(" + name + " ") != std::string::npos ||
               cmake.find("option(" + name + " ") != std::string::npos));
    }
    CHECK(options == 3);
    for (const char* needed : {"mpi", "hdf5", "onednn", "boost", "fmt", "nlohmann-json", "zlib-api"})
        CHECK_THAT(result.out, contains(std::string("depends_on ") + needed));
}

TEST_CASE("the Apptainer definition copies what the build needs", "[cli-install]") {
    const std::string definition = read_file(source_dir() / "tools/apptainer.def");
    std::istringstream lines(definition.substr(definition.find("%files\n") + 7));
    int copied = 0;
    for (std::string line; std::getline(lines, line) && !line.empty(); ++copied) {
        std::istringstream words(line);
        std::string from, to;
        words >> from >> to;
        INFO(line);
        CHECK(fs::exists(source_dir() / from));
        CHECK(to == "/source/" + from);
    }
    CHECK(copied == 11);
    // Everything that CMake installs or reads is among it.
    for (const char* part :
         {"CMakeLists.txt", "src", "include", "tools", "jobs", "doc", "LICENSE", "README.md", "CHANGELOG.md"})
        CHECK_THAT(definition, contains("\n    " + std::string(part) + " /source/"));
}
