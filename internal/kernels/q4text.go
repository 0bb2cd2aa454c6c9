package kernels

// mmaHeader is what the products need of the tensor cores: D[16,8] += A·B with
// sixteen columns of A, in bfloat16, added in float32; and two numbers of 4 bits as
// two of bfloat16, 128 above them, in one instruction.
const mmaHeader = `
__device__ __forceinline__ void gf_mma(float* c, const unsigned* a, unsigned b0, unsigned b1) {
asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};" : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ unsigned gf_q4(unsigned v) {
unsigned r;
asm("lop3.b32 %0,%1,%2,%3,0xea;" : "=r"(r) : "r"(v), "r"(0x000f000fu), "r"(0x43004300u));
return r;
}
`

const q4Macros = `
#define GF_LO(v) __uint_as_float((v) << 16)
#define GF_HI(v) __uint_as_float((v) & 0xffff0000u)
#define GF_Q4(v) gf_q4(v)
`
