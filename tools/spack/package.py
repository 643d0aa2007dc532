# Spack recipe, for Spack 0.23 and later. doc/clusters.md says how to use it with a checkout of one's own.
try:
    from spack_repo.builtin.build_systems.cmake import CMakePackage
except ImportError:
    pass  # earlier than 1.0: comes with spack.package

from spack.package import *


class Trireme(CMakePackage):
    """Distributed training of neural networks as one MPI program in C++."""

    license("Apache-2.0")
    version("main", branch="main")

    variant("native", default=False, description="Compile for the processor of this machine, beyond the target")
    variant("cuda", default=False, description="Build the CUDA backend")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("mpi")
    depends_on("hdf5@1.10: +mpi")
    depends_on("onednn@2.5: cpu_runtime=omp")
    depends_on("boost +program_options")
    depends_on("fmt@9:")
    depends_on("nlohmann-json@3.11:")
    depends_on("zlib-api")
    depends_on("cuda@12:", when="+cuda")
    depends_on("catch2@2.13:", type="test")

    conflicts("%gcc@:10", msg="C++20 is needed")

    def cmake_args(self):
        return [
            # Spack's compiler wrappers add the flags of the target.
            self.define("TRIREME_ARCH", "native" if self.spec.satisfies("+native") else ""),
            self.define("TRIREME_CUDA", "ON" if self.spec.satisfies("+cuda") else "OFF"),
            self.define("TRIREME_TESTS", self.run_tests),
        ]
