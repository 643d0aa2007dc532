// A real device works on while its host waits in MPI; so does this one, if the wait is long: MPI's blocking
// calls are defined here, over those that do not block.
#include <mpi.h>

#include <algorithm>
#include <chrono>

#include "lock.hpp"
#include "mail.hpp"
#include "patience.hpp"
#include "sanitizer.hpp"
#include "stream.hpp"

namespace trireme::cudaemu {
namespace {

using namespace std::chrono_literals;

constexpr auto long_wait = 10ms;  // until then the streams rest, since laziness shows more

// Calls test(&done), which returns an MPI error, until it is done.
template <class Test>
int wait_working(const char* why, Test test) {
    const san::Aside aside;
    Patience patience(why);
    const auto since = std::chrono::steady_clock::now();
    for (int done = 0;;) {
        if (const int e = test(&done); e != MPI_SUCCESS || done != 0) return e;
        if (std::chrono::steady_clock::now() - since > long_wait) work_a_little();
        patience.idle();
    }
}

// Starts a request and waits for it.
template <class Start>
int complete(const char* why, MPI_Status* status, Start start) {
    MPI_Request request = MPI_REQUEST_NULL;
    if (const int e = start(&request); e != MPI_SUCCESS) return e;
    return wait_working(why, [&](int* done) { return PMPI_Test(&request, done, status); });
}

template <class Start>
int complete(const char* why, Start start) {
    return complete(why, MPI_STATUS_IGNORE, start);
}

// For a program that waits by testing: now and then.
int tested(int error, int done) {
    static thread_local auto last = std::chrono::steady_clock::now();
    const auto now = std::chrono::steady_clock::now();
    if (done == 0 && now - last > long_wait) work_a_little();
    if (done != 0 || now - last > long_wait) last = now;
    return error;
}

void barrier(MPI_Comm c) {
    complete("MPI", [=](MPI_Request* r) { return PMPI_Ibarrier(c, r); });
}

}  // namespace
}  // namespace trireme::cudaemu

using namespace trireme::cudaemu;

extern "C" {

// The streams of a process use MPI from whichever thread waits for them.
int MPI_Init_thread(int* argc, char*** argv, int, int* provided) {
    const int e = PMPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, provided);
    if (e == MPI_SUCCESS) mail::begin();
    return e;
}

int MPI_Init(int* argc, char*** argv) {
    int provided = 0;
    return MPI_Init_thread(argc, argv, MPI_THREAD_SINGLE, &provided);
}

int MPI_Finalize(void) {
    barrier(MPI_COMM_WORLD);
    {
        const Lock lock;
        mail::end();
    }
    return PMPI_Finalize();
}

int MPI_Wait(MPI_Request* request, MPI_Status* status) {
    return wait_working("MPI_Wait", [=](int* done) { return PMPI_Test(request, done, status); });
}
int MPI_Waitall(int n, MPI_Request r[], MPI_Status s[]) {
    return wait_working("MPI_Waitall", [=](int* done) { return PMPI_Testall(n, r, done, s); });
}
int MPI_Waitany(int n, MPI_Request r[], int* which, MPI_Status* s) {
    return wait_working("MPI_Waitany", [=](int* done) { return PMPI_Testany(n, r, which, done, s); });
}
int MPI_Waitsome(int n, MPI_Request r[], int* count, int which[], MPI_Status s[]) {
    return wait_working("MPI_Waitsome", [=](int* done) {
        const int e = PMPI_Testsome(n, r, count, which, s);
        *done = *count != 0 ? 1 : 0;  // MPI_UNDEFINED, too, ends the wait
        return e;
    });
}
int MPI_Test(MPI_Request* request, int* done, MPI_Status* status) {
    const int e = PMPI_Test(request, done, status);
    return tested(e, *done);
}
int MPI_Testall(int n, MPI_Request r[], int* done, MPI_Status s[]) {
    const int e = PMPI_Testall(n, r, done, s);
    return tested(e, *done);
}
int MPI_Iprobe(int source, int tag, MPI_Comm c, int* there, MPI_Status* status) {
    const int e = PMPI_Iprobe(source, tag, c, there, status);
    return tested(e, *there);
}
int MPI_Probe(int source, int tag, MPI_Comm c, MPI_Status* status) {
    return wait_working("MPI_Probe", [=](int* there) { return PMPI_Iprobe(source, tag, c, there, status); });
}
int MPI_Mprobe(int source, int tag, MPI_Comm c, MPI_Message* m, MPI_Status* status) {
    return wait_working("MPI_Mprobe",
                        [=](int* there) { return PMPI_Improbe(source, tag, c, there, m, status); });
}

int MPI_Send(const void* p, int n, MPI_Datatype t, int to, int tag, MPI_Comm c) {
    return complete("MPI_Send", [=](MPI_Request* r) { return PMPI_Isend(p, n, t, to, tag, c, r); });
}
int MPI_Ssend(const void* p, int n, MPI_Datatype t, int to, int tag, MPI_Comm c) {
    return complete("MPI_Ssend", [=](MPI_Request* r) { return PMPI_Issend(p, n, t, to, tag, c, r); });
}
int MPI_Recv(void* p, int n, MPI_Datatype t, int from, int tag, MPI_Comm c, MPI_Status* status) {
    return complete("MPI_Recv", status, [=](MPI_Request* r) { return PMPI_Irecv(p, n, t, from, tag, c, r); });
}
int MPI_Sendrecv(const void* in, int n, MPI_Datatype t, int to, int tag, void* out, int m, MPI_Datatype u,
                 int from, int other_tag, MPI_Comm c, MPI_Status* status) {
    MPI_Request r = MPI_REQUEST_NULL;
    if (const int e = PMPI_Isend(in, n, t, to, tag, c, &r); e != MPI_SUCCESS) return e;
    const int e = MPI_Recv(out, m, u, from, other_tag, c, status);
    return e != MPI_SUCCESS ? e : MPI_Wait(&r, MPI_STATUS_IGNORE);
}

int MPI_Barrier(MPI_Comm c) {
    return complete("MPI_Barrier", [=](MPI_Request* r) { return PMPI_Ibarrier(c, r); });
}
int MPI_Bcast(void* p, int n, MPI_Datatype t, int root, MPI_Comm c) {
    return complete("MPI_Bcast", [=](MPI_Request* r) { return PMPI_Ibcast(p, n, t, root, c, r); });
}
int MPI_Reduce(const void* in, void* out, int n, MPI_Datatype t, MPI_Op op, int root, MPI_Comm c) {
    return complete("MPI_Reduce",
                    [=](MPI_Request* r) { return PMPI_Ireduce(in, out, n, t, op, root, c, r); });
}
int MPI_Allreduce(const void* in, void* out, int n, MPI_Datatype t, MPI_Op op, MPI_Comm c) {
    return complete("MPI_Allreduce",
                    [=](MPI_Request* r) { return PMPI_Iallreduce(in, out, n, t, op, c, r); });
}
int MPI_Scan(const void* in, void* out, int n, MPI_Datatype t, MPI_Op op, MPI_Comm c) {
    return complete("MPI_Scan", [=](MPI_Request* r) { return PMPI_Iscan(in, out, n, t, op, c, r); });
}
int MPI_Exscan(const void* in, void* out, int n, MPI_Datatype t, MPI_Op op, MPI_Comm c) {
    return complete("MPI_Exscan", [=](MPI_Request* r) { return PMPI_Iexscan(in, out, n, t, op, c, r); });
}
int MPI_Reduce_scatter_block(const void* in, void* out, int n, MPI_Datatype t, MPI_Op op, MPI_Comm c) {
    return complete("MPI_Reduce_scatter_block",
                    [=](MPI_Request* r) { return PMPI_Ireduce_scatter_block(in, out, n, t, op, c, r); });
}
int MPI_Reduce_scatter(const void* in, void* out, const int n[], MPI_Datatype t, MPI_Op op, MPI_Comm c) {
    return complete("MPI_Reduce_scatter",
                    [=](MPI_Request* r) { return PMPI_Ireduce_scatter(in, out, n, t, op, c, r); });
}
int MPI_Gather(const void* in, int n, MPI_Datatype t, void* out, int m, MPI_Datatype u, int root,
               MPI_Comm c) {
    return complete("MPI_Gather",
                    [=](MPI_Request* r) { return PMPI_Igather(in, n, t, out, m, u, root, c, r); });
}
int MPI_Gatherv(const void* in, int n, MPI_Datatype t, void* out, const int m[], const int at[],
                MPI_Datatype u, int root, MPI_Comm c) {
    return complete("MPI_Gatherv",
                    [=](MPI_Request* r) { return PMPI_Igatherv(in, n, t, out, m, at, u, root, c, r); });
}
int MPI_Scatter(const void* in, int n, MPI_Datatype t, void* out, int m, MPI_Datatype u, int root,
                MPI_Comm c) {
    return complete("MPI_Scatter",
                    [=](MPI_Request* r) { return PMPI_Iscatter(in, n, t, out, m, u, root, c, r); });
}
int MPI_Allgather(const void* in, int n, MPI_Datatype t, void* out, int m, MPI_Datatype u, MPI_Comm c) {
    return complete("MPI_Allgather",
                    [=](MPI_Request* r) { return PMPI_Iallgather(in, n, t, out, m, u, c, r); });
}
int MPI_Allgatherv(const void* in, int n, MPI_Datatype t, void* out, const int m[], const int at[],
                   MPI_Datatype u, MPI_Comm c) {
    return complete("MPI_Allgatherv",
                    [=](MPI_Request* r) { return PMPI_Iallgatherv(in, n, t, out, m, at, u, c, r); });
}
int MPI_Alltoall(const void* in, int n, MPI_Datatype t, void* out, int m, MPI_Datatype u, MPI_Comm c) {
    return complete("MPI_Alltoall",
                    [=](MPI_Request* r) { return PMPI_Ialltoall(in, n, t, out, m, u, c, r); });
}

// These have no form that does not block: the wait for the others comes first.
int MPI_Comm_dup(MPI_Comm c, MPI_Comm* out) {
    barrier(c);
    return PMPI_Comm_dup(c, out);
}
int MPI_Comm_split(MPI_Comm c, int color, int key, MPI_Comm* out) {
    barrier(c);
    return PMPI_Comm_split(c, color, key, out);
}
int MPI_Comm_split_type(MPI_Comm c, int type, int key, MPI_Info info, MPI_Comm* out) {
    barrier(c);
    return PMPI_Comm_split_type(c, type, key, info, out);
}
int MPI_Comm_create(MPI_Comm c, MPI_Group g, MPI_Comm* out) {
    barrier(c);
    return PMPI_Comm_create(c, g, out);
}

}  // extern "C"
