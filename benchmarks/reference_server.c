/* A streaming server that keeps a schedule and writes down what it really sent.
 *
 * The first token of an answer leaves TTFT_MS after the last byte of its request was read, the
 * others follow every GAP_MS; one thread, one epoll loop, the last microseconds waited out by
 * spinning. Chat completions over HTTP/1.1, chunked server-sent events of some 200 bytes, with a
 * usage event at the end. Loopback only: it is a ruler for load generators, not a server.
 *
 *   cc -O2 -o reference_server reference_server.c
 *   ./reference_server TTFT_MS GAP_MS        prints its port
 *
 * GET /sent gives one line a finished request and forgets it: its number, which `usage` gives as
 * the prompt's tokens, so that a client's record can be found; when it was read, and when each
 * token was sent (the middle of the call that did it), in ns of the system clock. GET /streams gives the most streams at once.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MAX_FD = 65536, REQUEST_BYTES = 1 << 20, SPIN_NS = 60000 };

struct stream {
    int fd, tokens, sent, place, number; /* place in the heap, -1 outside of it */
    int64_t due, read_at, *sent_at;
    int capacity;
    char *in;
    size_t in_len;
    char *out; /* what the socket did not take yet */
    size_t out_len, out_at;
};

static struct stream *streams[MAX_FD], *heap[MAX_FD];
static int heap_len, most, requests;
static int64_t ttft_ns, gap_ns;
static char *sent_log;
static size_t sent_len, sent_cap;

static int64_t now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static void put(int place, struct stream *s)
{
    heap[place] = s;
    s->place = place;
}

static void sift(int place)
{
    struct stream *s = heap[place];
    while (place && heap[(place - 1) / 2]->due > s->due) {
        put(place, heap[(place - 1) / 2]);
        place = (place - 1) / 2;
    }
    for (;;) {
        int child = 2 * place + 1;
        if (child + 1 < heap_len && heap[child + 1]->due < heap[child]->due)
            child++;
        if (child >= heap_len || heap[child]->due >= s->due)
            break;
        put(place, heap[child]);
        place = child;
    }
    put(place, s);
}

static void schedule(struct stream *s, int64_t due)
{
    s->due = due;
    if (s->place < 0) {
        put(heap_len++, s);
        if (heap_len > most)
            most = heap_len;
    }
    sift(s->place);
}

static void unschedule(struct stream *s)
{
    int place = s->place;
    if (place < 0)
        return;
    s->place = -1;
    if (--heap_len != place) {
        put(place, heap[heap_len]);
        sift(place);
    }
}

static void drop(struct stream *s)
{
    unschedule(s);
    close(s->fd);
    streams[s->fd] = NULL;
    free(s->sent_at);
    free(s->in);
    free(s->out);
    free(s);
}

static int push(struct stream *s)
{
    while (s->out_at < s->out_len) {
        ssize_t n = send(s->fd, s->out + s->out_at, s->out_len - s->out_at,
                         MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0)
            return errno == EAGAIN ? 0 : -1;
        s->out_at += n;
    }
    s->out_at = s->out_len = 0;
    return 0;
}

static int emit(struct stream *s, const char *data, size_t len)
{
    s->out = realloc(s->out, s->out_len + len);
    memcpy(s->out + s->out_len, data, len);
    s->out_len += len;
    return push(s);
}

static int chunk(char *to, const char *json)
{
    return sprintf(to, "%zx\r\ndata: %s\n\n\r\n", strlen(json) + 8, json);
}

static void note(struct stream *s)
{
    size_t need = 24 * (size_t)(s->tokens + 3);
    if (sent_len + need > sent_cap) {
        sent_cap = (sent_cap + need) * 2;
        sent_log = realloc(sent_log, sent_cap);
    }
    sent_len += sprintf(sent_log + sent_len, "%d %lld", s->number, (long long)s->read_at);
    for (int i = 0; i < s->tokens; i++)
        sent_len += sprintf(sent_log + sent_len, " %lld", (long long)s->sent_at[i]);
    sent_log[sent_len++] = '\n';
}

static void send_token(struct stream *s)
{
    char json[512], data[2048];
    int last = s->sent + 1 == s->tokens, len = 0;
    sprintf(json,
            "{\"id\":\"chatcmpl-%016llx%08x\",\"object\":\"chat.completion.chunk\",\"created\":"
            "1700000000,\"model\":\"reference\",\"choices\":[{\"index\":0,\"delta\":{\"content\":"
            "\" t%d\"},\"logprobs\":null,\"finish_reason\":%s}]}",
            (unsigned long long)s->read_at, s->fd, s->sent, last ? "\"length\"" : "null");
    len += chunk(data + len, json);
    if (last) {
        sprintf(json,
                "{\"id\":\"chatcmpl-0\",\"object\":\"chat.completion.chunk\",\"choices\":[],\"usage\":"
                "{\"prompt_tokens\":%d,\"total_tokens\":%d,\"completion_tokens\":%d}}",
                s->number, s->number + s->tokens, s->tokens);
        len += chunk(data + len, json);
        len += chunk(data + len, "[DONE]");
        len += sprintf(data + len, "0\r\n\r\n");
    }
    int64_t before = now(CLOCK_REALTIME);
    int failed = emit(s, data, len);
    s->sent_at[s->sent++] = before + (now(CLOCK_REALTIME) - before) / 2;
    if (failed) {
        drop(s);
    } else if (last) {
        unschedule(s);
        note(s);
    } else {
        schedule(s, s->due + gap_ns);
    }
}

static void reply(struct stream *s, const char *kind, const char *body, size_t len)
{
    char head[256];
    int n = sprintf(head, "HTTP/1.1 200 OK\r\ncontent-type: %s\r\ncontent-length: %zu\r\n\r\n", kind,
                    len);
    if (emit(s, head, n) || emit(s, body, len))
        return; /* the loop will see the connection's end */
}

static void answer(struct stream *s, const char *path, const char *body)
{
    char text[256];
    if (!strncmp(path, "/v1/models", 10)) {
        const char *models = "{\"data\":[{\"id\":\"reference\",\"owned_by\":\"reference\"}]}";
        reply(s, "application/json", models, strlen(models));
    } else if (!strncmp(path, "/health", 7)) {
        reply(s, "application/json", "{}", 2);
    } else if (!strncmp(path, "/sent", 5)) {
        reply(s, "text/plain", sent_log ? sent_log : "", sent_len);
        sent_len = 0;
    } else if (!strncmp(path, "/streams", 8)) {
        int n = sprintf(text, "%d\n", most);
        reply(s, "text/plain", text, n);
        most = 0;
    } else if (strncmp(path, "/v1/chat/completions", 20)) {
        const char *none = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n";
        emit(s, none, strlen(none));
    } else {
        const char *limit = strstr(body, "\"max_tokens\":");
        if (!limit)
            limit = strstr(body, "\"max_completion_tokens\":");
        s->tokens = limit ? atoi(strchr(limit, ':') + 1) : 100;
        if (s->tokens < 1)
            s->tokens = 1;
        if (!strstr(body, "\"stream\": true") && !strstr(body, "\"stream\":true")) {
            const char *whole = "{\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\","
                                "\"content\":\"t\"},\"finish_reason\":\"length\"}],\"usage\":"
                                "{\"prompt_tokens\":32,\"completion_tokens\":1,\"total_tokens\":33}}";
            reply(s, "application/json", whole, strlen(whole));
            return;
        }
        const char *head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
                           "transfer-encoding: chunked\r\n\r\n";
        if (s->tokens > s->capacity) {
            s->capacity = s->tokens;
            s->sent_at = realloc(s->sent_at, sizeof *s->sent_at * s->tokens);
        }
        s->sent = 0;
        s->number = ++requests;
        s->read_at = now(CLOCK_REALTIME);
        schedule(s, now(CLOCK_MONOTONIC) + ttft_ns);
        emit(s, head, strlen(head));
    }
}

/* Read what is there; answer every complete request. */
static void receive(struct stream *s)
{
    for (;;) {
        ssize_t n = recv(s->fd, s->in + s->in_len, REQUEST_BYTES - 1 - s->in_len, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN)) {
            drop(s);
            return;
        }
        if (n < 0)
            break;
        s->in_len += n;
        if (s->in_len == REQUEST_BYTES - 1) {
            drop(s);
            return;
        }
    }
    s->in[s->in_len] = 0;
    char *end = strstr(s->in, "\r\n\r\n");
    if (!end || s->place >= 0)
        return;
    char *length = strcasestr(s->in, "content-length:");
    size_t whole = end + 4 - s->in;
    if (length && length < end)
        whole += atol(length + 15);
    if (s->in_len < whole)
        return;
    char kept = s->in[whole];
    s->in[whole] = 0;
    char *path = strchr(s->in, ' ');
    answer(s, path ? path + 1 : "", end + 4);
    s->in[whole] = kept;
    memmove(s->in, s->in + whole, s->in_len - whole);
    s->in_len -= whole;
}

static void accept_all(int listener, int poll)
{
    for (;;) {
        int one = 1, fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
        if (fd < 0)
            return;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        struct stream *s = calloc(1, sizeof *s);
        s->fd = fd;
        s->place = -1;
        s->in = malloc(REQUEST_BYTES);
        streams[fd] = s;
        struct epoll_event event = {EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, {.fd = fd}};
        epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event);
    }
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: %s TTFT_MS GAP_MS\n", argv[0]);
        return 2;
    }
    ttft_ns = atof(argv[1]) * 1e6;
    gap_ns = atof(argv[2]) * 1e6;
    signal(SIGPIPE, SIG_IGN);
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), poll = epoll_create1(0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;
    if (bind(listener, (struct sockaddr *)&address, size) || listen(listener, 8192)) {
        perror("reference_server");
        return 1;
    }
    getsockname(listener, (struct sockaddr *)&address, &size);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    struct epoll_event event = {EPOLLIN, {.fd = listener}}, events[256];
    epoll_ctl(poll, EPOLL_CTL_ADD, listener, &event);
    event.data.fd = STDIN_FILENO; /* its end is ours */
    epoll_ctl(poll, EPOLL_CTL_ADD, STDIN_FILENO, &event);
    for (;;) {
        struct timespec wait, *timeout = NULL;
        if (heap_len) {
            int64_t left = heap[0]->due - now(CLOCK_MONOTONIC) - SPIN_NS;
            left = left < 0 ? 0 : left;
            wait.tv_sec = left / 1000000000;
            wait.tv_nsec = left % 1000000000;
            timeout = &wait;
        }
        int n = epoll_pwait2(poll, events, 256, timeout, NULL);
        for (int i = 0; i < n; i++) {
            int fd = events[i].data.fd;
            if (fd == listener) {
                accept_all(listener, poll);
            } else if (fd == STDIN_FILENO) {
                char end[64];
                if (read(fd, end, sizeof end) <= 0)
                    return 0;
            } else if (streams[fd]) {
                if (events[i].events & EPOLLOUT && push(streams[fd])) {
                    drop(streams[fd]);
                    continue;
                }
                if (events[i].events & ~EPOLLOUT)
                    receive(streams[fd]);
            }
        }
        /* A burst of due tokens must not keep requests from being read for long. */
        for (int sent = 0; sent < 256 && heap_len; sent++) {
            if (heap[0]->due > now(CLOCK_MONOTONIC))
                break;
            send_token(heap[0]);
        }
    }
}
